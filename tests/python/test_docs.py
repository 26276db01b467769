# SPDX-License-Identifier: MIT
"""The snippets of docs/python.md, in their order, as one program."""

import importlib.util
import os
import re
import shutil

import pytest

pytest.importorskip("numpy")

HERE = os.path.dirname(os.path.abspath(__file__))
PAGE = os.path.join(HERE, "..", "..", "docs", "python.md")


def test_snippets_of_the_page(capsys, monkeypatch, tmp_path):
    import cowshed

    with open(PAGE, encoding="utf-8") as page:
        text = page.read()
    snippets = re.findall(r"```python\n(.*?)```", text, re.S)
    assert len(snippets) > 5
    names = {}
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))  # a broker of the test's own
    try:
        for snippet in snippets:
            if "pyarrow" in snippet and importlib.util.find_spec("pyarrow") is None:
                continue
            exec(compile(snippet, PAGE, "exec"), names)
    finally:
        cowshed.multiprocessing._strategy._broker = None  # the broker ends with its last client
        if "folder" in names:
            shutil.rmtree(names["folder"])
    assert "<cowshed.Storage of 8000000 bytes, own>" in capsys.readouterr().out
    for name in re.findall(r"`(?:cowshed\.)?([a-z_]+)\(", text):
        assert hasattr(cowshed, name) or name in ("wait", "fork"), name
