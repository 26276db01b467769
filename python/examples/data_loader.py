# SPDX-License-Identifier: MIT
"""PyTorch's DataLoader over images in one large array, whose batches travel by handle.

The images lie in a mapped file. Forked workers inherit the mapping. Spawned workers get the file's
name and map it themselves. All of them share the pages that one of them has read. After
cowshed.torch.install() the workers return their batches without a copy, and without files in
/dev/shm.

    python data_loader.py [MiB] [workers]
"""

import os
import sys
import tempfile

import numpy as np
import torch

import cowshed
import cowshed.torch


class Images(torch.utils.data.Dataset):
    """Images of 96 x 96 pixels in three colours, with their numbers."""

    def __init__(self, images):
        self.images = images

    def __len__(self):
        return len(self.images)

    def __getitem__(self, i):
        return torch.from_numpy(self.images[i]).float() / 255, i


def main(mib=1024, workers=2):
    cowshed.torch.install()
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "images.bin")
        count = (mib << 20) // (3 * 96 * 96)
        with open(path, "wb") as file:
            for i in range(count):
                file.write(np.full((3, 96, 96), i % 256, "u1").tobytes())
        images = cowshed.open(path, dtype="u1", shape=(count, 3, 96, 96))
        loader = torch.utils.data.DataLoader(Images(images), batch_size=64, num_workers=workers,
                                             shuffle=True)
        seen = 0
        for batch, numbers in loader:
            assert torch.equal(batch[:, 1, 5, 5], (numbers % 256).float() / 255)
            seen += len(batch)
    assert seen == count
    print(f"{count} images by {workers} workers")


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
