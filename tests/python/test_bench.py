# SPDX-License-Identifier: MIT
"""bench/common.sh marks the measurements that failed, so that none counts as a bar that was met."""

import os
import subprocess

import pytest

ROOT = os.path.realpath(os.path.join(os.path.dirname(__file__), "../.."))


@pytest.fixture
def script(tmp_path):
    """Runs lines of sh as a script of bench/; $tmp/some has numbers, $tmp/none is empty."""

    def run(text):
        path = tmp_path / "script.sh"
        path.write_text(f'. "{ROOT}/bench/common.sh"\n'
                        'echo 3 >"$tmp/some"; echo 5 >"$tmp/more"; : >"$tmp/none"\n' + text)
        done = subprocess.run(["sh", str(path)], capture_output=True, text=True)
        assert not done.stderr
        return done.returncode, done.stdout

    return run


@pytest.mark.parametrize("on", ["ours", "worst", "ratio", "speedup", "-", "faster"])
@pytest.mark.parametrize("files", [("some", "none"), ("none", "some"), ("some", "absent"),
                                   ("absent", "none")])
def test_a_line_without_ours_or_a_named_rival_failed(script, on, files):
    ours, rival = files
    status, out = script(f'report b c ms "$tmp/{ours}" "$tmp/{rival}" {on} 5')
    assert status == 1 and " met=failed " in out


def test_a_failed_line_of_a_subshell_counts(script):
    assert script('{ report b c ms "$tmp/none" - ours 5; } | cat')[0] == 1


def test_lines_that_could_be_measured(script):
    status, out = script('report b c ms "$tmp/some" "$tmp/more" ratio 1\n'
                         'report b c ms "$tmp/some" - ours 2\n'
                         'report b c ms "$tmp/some" - - 0')
    met = [word for word in out.split() if word.startswith("met=")]
    assert status == 0 and met == ["met=yes", "met=no", "met=-"]


def test_a_bar_on_the_worst_judges_each(script):
    status, out = script('printf "1\\n1\\n9\\n" >"$tmp/many"\n'
                         'report b c ms "$tmp/many" - ours 5\n'
                         'report b c ms "$tmp/many" - worst 5\n'
                         'report b c ms "$tmp/many" "$tmp/some" worst 9')
    lines = [line for line in out.splitlines() if line.startswith("bench=")]
    assert status == 0 and " on=ours met=yes " in lines[0]
    assert " bar=<=5 on=worst met=no " in lines[1] and " on=worst met=yes " in lines[2]


def test_an_empty_rival_is_not_the_better_one(script):
    status, out = script('for how in "" most; do\n'
                         'better "$tmp/none" "$tmp/some" $how\n'
                         'better "$tmp/some" "$tmp/none" $how\n'
                         'better "$tmp/some" "$tmp/more" $how; done')
    names = [os.path.basename(line) for line in out.splitlines()]
    assert names == ["some", "some", "some", "some", "some", "more"]


def test_memory_without_a_cgroup_has_no_bar(script):
    text = 'report b c KiB "$tmp/some" "$tmp/more" ratio 1 "$(peak_by "$tmp/by")"'
    status, out = script(f'printf "cgroup\\ncgroup\\n" >"$tmp/by"; {text}')
    assert status == 0 and " met=yes " in out and " by=cgroup\n" in out
    status, out = script(f'printf "cgroup\\nrss\\ncgroup\\n" >"$tmp/by"; {text}')
    assert status == 1 and " met=failed " in out and " by=rss\n" in out
    status, out = script('report b c KiB "$tmp/some" "$tmp/more" - 0 rss')
    assert status == 0 and " met=- " in out and " by=rss\n" in out


def test_each_turn_begins_with_another_side(script):
    text = ('turns=3; once() { printf "%s" "$1$2 "; echo "x=$turn" >"$tmp/out"; keep "$1"; }\n'
            'in_turns "a shim b" once 1; row c ms x a - 0; row d ms x "a b" - 0\n'
            'BENCH_SIDES=shim; in_turns "a shim" once 2')
    status, out = script(text)
    lines = [line for line in out.splitlines() if "bench=" in line]
    assert out.startswith("a1 shim1 b1 shim1 b1 a1 b1 a1 shim1 ")
    assert status == 0 and len(lines) == 2
    assert all("bench=script " in line and " ours=1 ours_min=0 ours_max=2 rival=1 " in line
               for line in lines)
    assert out.endswith("shim2 shim2 shim2 ")


def test_the_better_of_several_rivals_counts(script):
    out = script('mkdir "$tmp/of"; echo 4 >"$tmp/of/shim.x"; echo 8 >"$tmp/of/a.x"\n'
                 'echo 2 >"$tmp/of/b.x"; row c ms x "a b" ratio 1; row d ms x "$tmp/some" - 0')[1]
    assert " rival=2 " in out and " ratio=2 " in out and " case=d unit=ms ours=4 " in out
