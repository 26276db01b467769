# SPDX-License-Identifier: MIT
"""cowshed.ray beside another library that wraps the same function of Ray. Needs no Ray."""

import subprocess
import sys

PROGRAM = """
import sys, types

def module(name, **members):
    made = sys.modules[name] = types.ModuleType(name)
    vars(made).update(members)
    return made

pickler = type("CloudPickler", (), {"dispatch": {}})
reader = module("ray._private.serialization", unpack_pickle5_buffers=lambda data: (data, []))
module("ray", __version__="2.60.0", _private=module("ray._private", serialization=reader),
       cloudpickle=module("ray.cloudpickle", CloudPickler=pickler))
import cowshed.ray

plain = reader.unpack_pickle5_buffers
cowshed.ray.install()
ours = reader.unpack_pickle5_buffers
assert ours is not plain
cowshed.ray.uninstall()
assert reader.unpack_pickle5_buffers is plain and plain(1) == (1, [])

cowshed.ray.install()
theirs = reader.unpack_pickle5_buffers = lambda data: ours(data)
for turn in range(3):
    cowshed.ray.uninstall()
    assert not cowshed.ray.is_installed() and reader.unpack_pickle5_buffers(3) == (3, [])
    cowshed.ray.install()
    assert cowshed.ray.is_installed() and reader.unpack_pickle5_buffers(4) == (4, [])
assert reader.unpack_pickle5_buffers is theirs

cowshed.ray.uninstall()
reader.unpack_pickle5_buffers = plain  # both are gone
cowshed.ray.install()
assert reader.unpack_pickle5_buffers is ours and ours(5) == (5, [])
cowshed.ray.uninstall()
assert reader.unpack_pickle5_buffers is plain
print("done")
"""


def test_another_wrapper_stays():
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True)
    assert (done.stdout, done.stderr) == ("done\n", "")
