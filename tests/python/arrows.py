# SPDX-License-Identifier: MIT
"""What the tests of cowshed.arrow share: a broker of their own, a table, where its bytes lie."""

import tempfile

import pytest

from cowshed.multiprocessing import _strategy


@pytest.fixture(autouse=True)
def runtime(monkeypatch):
    """A folder for a broker of the test's own, which ends with the test."""
    with tempfile.TemporaryDirectory() as folder:
        monkeypatch.setenv("XDG_RUNTIME_DIR", folder)
        monkeypatch.setattr(_strategy, "_broker", None)
        monkeypatch.setattr(_strategy, "_address", None)
        yield folder
        _strategy._broker = None


def rides(n=1 << 17):
    import numpy as np
    import pyarrow as pa

    numbers = np.arange(n)
    return pa.table({
        "id": numbers, "fare": numbers / 4.0, "day": numbers.astype("datetime64[s]"),
        "place": pa.array([f"place {i % 1000}" for i in range(n)]),
        "kind": pa.array(["bus", "tram"] * (n // 2)).dictionary_encode(),
        "parts": pa.array([[i, None] for i in range(n)]),
    })


def lies_in(storage, chunk):
    """Whether all buffers of an array lie in a storage."""
    low, high = storage.address, storage.address + storage.nbytes
    return all(low <= part.address and part.address + part.size <= high
               for part in chunk.buffers() if part is not None and part.size)
