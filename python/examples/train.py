# SPDX-License-Identifier: MIT
"""Checkpoints while training goes on: PyTorch's loop, and three more lines.

checkpoint() forks a process, which writes the state of this moment while the loop goes on. That
suits training, which rewrites the whole state in each step. snapshot() keeps the state of a moment
in this process. That suits states of which the program writes little.

The checkpoint has the model, and the optimizer's state of each parameter. At the end a second
model is restored from the file, and trains on as the first one does.

    python train.py [steps] [width]
"""

import math
import os
import sys
import tempfile

import torch

import cowshed


def new(width):
    model = torch.nn.Sequential(torch.nn.Linear(64, width), torch.nn.ReLU(),
                                torch.nn.Linear(width, width), torch.nn.ReLU(),
                                torch.nn.Linear(width, 1))
    return model, torch.optim.Adam(model.parameters())


def train(model, optimizer, x, y):
    loss = (model(x) - y).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    return loss.item()


def restore(model, optimizer, saved):
    """Loads a checkpoint. The names in the file are those of the state, joined by dots.

    The optimizer's groups (the learning rate and the like) are set by this program, not saved.
    """
    weights, known = {}, {}
    for name in saved:
        kind, _, name_there = name.partition(".")
        if kind == "model":
            weights[name_there] = saved[name]
        else:
            number, _, what = name_there.partition(".")
            known.setdefault(int(number), {})[what] = saved[name]
    model.load_state_dict(weights)
    groups = optimizer.state_dict()["param_groups"]
    optimizer.load_state_dict({"state": known, "param_groups": groups})


def main(steps=30, width=2048):
    torch.manual_seed(0)
    model, optimizer = new(width)
    x = torch.randn(256, 64)
    y = x.square().sum(1, keepdim=True)
    saving, losses = None, []
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "state.safetensors")
        for step in range(steps):
            losses.append(train(model, optimizer, x, y))
            if step % 10 == 9 or step == steps - 1:
                if saving:
                    saving.wait()  # raises the error if the last one failed
                state = {"model": model.state_dict(), "optimizer": optimizer.state_dict()["state"],
                         "step": step, "loss": losses[-1]}
                saving = cowshed.checkpoint(state, path)
        if saving:
            saving.wait()
        saved = cowshed.open(path, framework="torch", load=True)
    again = new(width)
    restore(*again, saved)
    for _ in range(3):  # the optimizer's state has an effect from the second step on
        there, here = train(*again, x, y), train(model, optimizer, x, y)
        assert math.isclose(there, here, rel_tol=1e-5)
    print(f"loss {losses[0]:.3f} -> {losses[-1]:.3f} -> {here:.3f}; again from step "
          f"{saved.metadata['step']}: {there:.3f}")
    assert here < losses[0]


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
