# SPDX-License-Identifier: MIT
"""What the README shows does what it says."""

import os
import re

import pytest

README = os.path.join(os.path.dirname(__file__), "../../README.md")


def examples():
    with open(README, encoding="utf-8") as text:
        return re.findall(r"^```python\n(.*?)^```", text.read(), re.M | re.S)


def test_there_are_some():
    assert examples()


@pytest.mark.parametrize("number", range(len(examples())))
def test_example(number):
    pytest.importorskip("numpy")
    exec(compile(examples()[number], f"README.md, example {number + 1}", "exec"), {})
