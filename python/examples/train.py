# SPDX-License-Identifier: MIT
"""Checkpoints while training goes on: PyTorch's loop, and three lines more.

checkpoint() forks a process, which writes the state of this moment while the loop goes on; that
suits training, which rewrites everything in each step. snapshot() keeps the state of a
moment in this process, to go back to; it suits states of which little is written.

    python train.py [steps] [width]
"""

import os
import sys
import tempfile

import torch

import cowshed


def main(steps=30, width=2048):
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(64, width), torch.nn.ReLU(),
                                torch.nn.Linear(width, width), torch.nn.ReLU(),
                                torch.nn.Linear(width, 1))
    optimizer = torch.optim.Adam(model.parameters())
    x = torch.randn(256, 64)
    y = x.square().sum(1, keepdim=True)
    saving, losses = None, []
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "state.safetensors")
        for step in range(steps):
            loss = (model(x) - y).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
            if step % 10 == 9:
                if saving:
                    saving.wait()  # raises what went wrong with the last one
                state = {"model": model.state_dict(), "step": step, "loss": losses[-1]}
                saving = cowshed.checkpoint(state, path)
        saving.wait()
        saved = cowshed.open(path, framework="torch")
        model.load_state_dict({name.removeprefix("model."): saved[name] for name in saved})
        again = (model(x) - y).square().mean().item()
    print(f"loss {losses[0]:.3f} -> {losses[-1]:.3f}; again from step {saved.metadata['step']}: "
          f"{again:.3f}")
    assert losses[-1] < losses[0]


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
