# SPDX-License-Identifier: MIT
"""`cowshed profile`: what the page has, that it loads nothing, and that a browser shows it."""

import html
import html.parser
import os
import re
import shutil
import signal
import subprocess
import sys

import pytest

from cowshed import _cowshed

COMMAND = os.path.join(os.path.dirname(_cowshed.__file__), "bin", "cowshed")
MIB = 1 << 20

# Memory that is large enough to be seen, two forks, and a time in which it can be looked at.
PROGRAM = """
import os, sys, time
x = bytearray(b"x" * (64 << 20))
for _ in range(2):
    pid = os.fork()
    if pid == 0:
        x[: 16 << 20] = bytes(16 << 20)
        time.sleep(0.2)
        os._exit(0)
    os.waitpid(pid, 0)
time.sleep(float(sys.argv[2]))
sys.exit(int(sys.argv[1]))
"""


class Page(html.parser.HTMLParser):
    """What a page has. Every element is closed, where it has to be."""

    EMPTY = {"meta", "br", "path", "rect"}

    def __init__(self, text):
        super().__init__()
        self.open, self.tags, self.text, self.attributes = [], [], [], []
        self.feed(text)
        assert self.open in ([], ["html"]), self.open

    def handle_starttag(self, tag, attributes):
        self.tags.append(tag)
        self.attributes += attributes
        if tag not in self.EMPTY:
            self.open.append(tag)

    def handle_endtag(self, tag):
        if tag not in self.EMPTY:
            assert self.open.pop() == tag

    def handle_data(self, data):
        self.text.append(data)


def profile(*words, path, status=0, seconds=50):
    done = subprocess.run([COMMAND, "profile", "--output", path, *words], capture_output=True,
                          text=True, timeout=seconds)
    assert done.returncode == status, done.stderr
    return done


def watched(path, status):
    """Runs PROGRAM, longer and longer until the page has a fork: on a busy machine the looks are
    few. Returns what it said."""
    for seconds in 0.5, 2, 10:
        done = profile("--threshold", "1M", sys.executable, "-c", PROGRAM, str(status),
                       str(seconds), path=path, status=status)
        if "<rect" in read(path)[0]:
            break
    return done


def read(path):
    with open(path, encoding="utf-8") as file:
        text = file.read()
    return text, Page(text)


@pytest.fixture
def path(tmp_path):
    return str(tmp_path / "page.html")


def test_the_page_has_what_happened(path):
    done = watched(path, 3)
    assert done.stderr == f"cowshed: the profile is in {path}\n" and not done.stdout
    text, page = read(path)
    said = " ".join(page.text)
    for words in ("Exit status 3", "Memory over time", "Forks and their pauses",
                  "most memory at once", "What to try next", "Done the slow way", "bytes_copied",
                  "fork_ns_max"):
        assert words in said, words
    assert page.tags.count("svg") == 2
    forks = re.search(r"<b>([0-9]+)</b><span>forks", text)
    most = re.search(r"<b>([0-9.]+) MiB</b><span>most memory", text)
    assert forks[1] == "2" and 64 <= float(most[1]) < 512


# Call sites, in processes with every kind of end. The mmap is memory that is not the engine's.
SITES = """
import mmap, os, signal
import cowshed, numpy

def lazily(x):
    cowshed.clone(x)

def copied(y):
    for _ in range(3):
        cowshed.clone(y)

x = cowshed.zeros(1 << 20)
y = numpy.frombuffer(mmap.mmap(-1, 8 << 20), "u1")
lazily(x)
cowshed.clone(cowshed.zeros(10))
for end in 0, 9:
    if os.fork() == 0:
        lazily(x)
        copied(y)
        os.kill(os.getpid(), end)
        os._exit(0)
    os.wait()
"""


def rows(text):
    """The cells of the rows of all tables."""
    found = re.findall("<tr>(.*?)</tr>", text)
    return [re.sub("<[^>]*>", "", row.replace("</td>", "\n")).split("\n")[:-1] for row in found]


def test_clones_and_copies_by_call_site(path):
    """Nothing of a process is lost that SIGKILL ends. Each fallback has its price."""
    profile("--threshold", "1M", sys.executable, "-c", SITES, path=path)
    text, _ = read(path)
    sites = {row[0]: row[1:4] for row in rows(text) if row and row[0].startswith("&lt;string&gt;")}
    assert sites == {"&lt;string&gt;:10 copied": ["6", "0 B", "48.0 MiB"],
                     "&lt;string&gt;:15 &lt;module&gt;": ["1", "0 B", "80 B"],
                     "&lt;string&gt;:6 lazily": ["3", "24.0 MiB", "0 B"]}
    costs = {row[1]: row[2] for row in rows(text)
             if len(row) == 5 and row[1] in ("foreign", "held")}
    # The counters of the killed process are lost, its call sites are not.
    assert costs["foreign"] == "24.0 MiB copied"
    if "held" in costs:
        assert "a copy of each page that was written" in costs["held"]
    assert os.environ.get("COWSHED_SITES") is None


# Each clone but the first is a copy, since the whole array was rewritten.
REWRITTEN = """
import cowshed
x = cowshed.zeros(4 << 20)
kept = []
for i in range(6):
    x[:] = i
    kept.append(cowshed.clone(x))
"""


def advice(text):
    """What to try next, in order."""
    begin = text.index("What to try next")
    found = re.findall('<div class="try[^>]*>(.*?)</div>', text[begin:text.index("<h2>", begin)])
    return [re.sub("<[^>]*>", "", piece) for piece in found]


def test_advice_for_rewritten_storages_is_to_announce_it(path):
    """Not to allocate them by cowshed, which they are, and once."""
    profile(sys.executable, "-c", REWRITTEN, path=path)
    text, _ = read(path)
    said = [words for words in advice(text) if "cop" in words]
    assert len(said) == 1 and "write_intent(x, overwrite=True)" in said[0], said
    assert "llocate" not in said[0] and "--copies" not in said[0], said
    changes = {row[1]: row[4] for row in rows(text) if len(row) == 5}
    assert "cow_write_intent()" in changes["rewritten"], changes


# A step of an optimizer beside a snapshot: PyTorch calls the hook that copies.
STEPS = """
import torch
import cowshed.torch
cowshed.torch.install()
x = torch.nn.Parameter(cowshed.torch.zeros(1 << 20))
x.grad = torch.ones(1 << 20)
optimizer = torch.optim.SGD([x], lr=1)

def train():
    optimizer.step()

kept = cowshed.snapshot({"x": x})
train()
"""


@pytest.mark.limit(150)
def test_a_site_is_the_program_s_line_and_not_pytorch_s(path):
    pytest.importorskip("torch", reason="PyTorch is not installed")
    profile(sys.executable, "-c", STEPS, path=path, seconds=140)
    sites = {row[0] for row in rows(read(path)[0]) if len(row) > 3 and ":" in row[0]}
    assert "&lt;string&gt;:10 train" in sites, sites
    assert not [site for site in sites if "/torch/" in site], sites


def test_frames_of_libraries_are_no_sites(path, tmp_path):
    """Where all frames are of libraries, the innermost one is told."""
    library = tmp_path / "library"
    library.mkdir()
    (library / "hooks.py").write_text("import cowshed\ndef step(x):\n    cowshed.clone(x)\n")
    (tmp_path / "x.py").write_text(
        "import sys\nfrom cowshed import _cowshed, zeros\nsys.path.append(sys.argv[1])\n"
        "import hooks\ndef train():\n    hooks.step(zeros(1 << 20))\ntrain()\n"
        "_cowshed.skip_sites(sys.argv[1])\ntrain()\ntrain()\n"
        "_cowshed.skip_sites('/')\ntrain()\n")
    profile(sys.executable, str(tmp_path / "x.py"), str(library) + "/", path=path)
    found = {row[0].rsplit("/", 1)[-1]: row[1] for row in rows(read(path)[0])
             if row and ":" in row[0]}
    assert found == {"hooks.py:3 step": "2", "x.py:6 train": "2"}


def test_a_name_that_is_no_text(path, tmp_path):
    folder = os.fsencode(tmp_path) + b"/caf\xe9"
    os.mkdir(folder)
    with open(folder + b"/x.py", "w", encoding="ascii") as file:
        file.write("import cowshed\ncowshed.clone(cowshed.zeros(1 << 20))\n")
    profile(sys.executable, folder + b"/x.py", path=path)
    assert ["x.py:2 &lt;module&gt;", "1"] in [
        [row[0].rsplit("/", 1)[-1], row[1]] for row in rows(read(path)[0]) if len(row) > 1]


def test_a_long_name_is_cut_between_characters(path, tmp_path):
    folder = tmp_path / ("\xe9" * 110)
    folder.mkdir()
    for name in "x.py", "xy.py":
        (folder / name).write_text("import cowshed\ncowshed.clone(cowshed.zeros(1 << 20))\n")
        profile(sys.executable, str(folder / name), path=path)
        kept = f"{folder / name}:2 <module>".encode()[-207:]
        kept = kept.decode(errors="ignore")
        sites = [html.unescape(row[0]) for row in rows(read(path)[0]) if row]
        assert kept in sites, sites


def test_programs_without_call_sites(path):
    profile("true", path=path)
    assert "Only the Python package knows call sites" in read(path)[0]


def test_sites_of_a_profile_that_has_ended(tmp_path):
    other = tmp_path / "other"
    other.touch()
    for sites in str(tmp_path / "gone"), str(tmp_path), str(other):
        done = subprocess.run([sys.executable, "-c", "import cowshed; cowshed.zeros(1)"],
                              env={**os.environ, "COWSHED_SITES": sites}, capture_output=True)
        assert done.returncode == 0 and done.stderr == b"", done.stderr


# Its first child makes five forks, and ends. Then it makes two itself.
ENDING = """
import os, sys, time
x = bytearray(b"x" * (2 << 20))
if os.fork() == 0:
    y = bytearray(b"y" * (2 << 20))
    for _ in range(5):
        if os.fork() == 0:
            os._exit(0)
        os.wait()
    time.sleep(float(sys.argv[1]))
    os._exit(0)
os.wait()
for _ in range(2):
    if os.fork() == 0:
        os._exit(0)
    os.wait()
time.sleep(float(sys.argv[1]))
"""


def test_forks_beside_the_end_of_a_process_are_counted(path):
    for seconds in "0.5", "3", "10":
        profile("--threshold", "1M", sys.executable, "-c", ENDING, seconds, path=path)
        text, _ = read(path)
        forks = sum(map(int, re.findall("<title>forks: ([0-9]+)", text)))
        if forks == 8:
            break
    assert forks == 8 and "In no bar" not in text


SHARED = """
import os, signal, sys, time
x = bytearray(b"x") * (96 << 20)  # one block, never two
children = []
for _ in range(4):
    children.append(os.fork())
    if children[-1] == 0:
        signal.pause()
time.sleep(float(sys.argv[1]))
for child in children:
    os.kill(child, 9)
    os.wait()
"""


def test_pages_that_processes_share_count_once(path):
    """Those of other allocators, too."""
    for seconds in "1.5", "6", "20":
        profile("--threshold", "1T", sys.executable, "-c", SHARED, seconds, path=path)
        text, _ = read(path)
        most = float(re.search(r"<b>([0-9.]+) MiB</b><span>most memory", text)[1])
        if most >= 96:
            break
    assert 96 <= most < 2 * 96


def test_the_page_loads_nothing(path):
    profile("true", path=path)
    text, page = read(path)
    assert "script" not in page.tags and "link" not in page.tags and "img" not in page.tags
    assert not {"src", "href"} & {name for name, _ in page.attributes}
    assert "http" not in text and "@import" not in text and "url(" not in text


def test_words_of_the_program_are_text(path):
    profile("echo", "<script>alert(1)</script>&\"'\n\x01", path=path)
    _, page = read(path)
    assert "script" not in page.tags and "<script>alert(1)</script>&\"'??" in "".join(page.text)


def test_a_program_that_is_killed_or_was_never_there(path):
    done = profile(sys.executable, "-c", "import os; os.kill(os.getpid(), 9)", path=path,
                   status=-signal.SIGKILL)
    assert done.stderr.endswith(f"the profile is in {path}\n")
    text, _ = read(path)
    assert "Ended by signal 9" in text and "No process left a record" in text
    done = profile("/no/such/program", path=path, status=127)
    assert "can't be run" in done.stderr
    assert read(path)[0] == text  # an old page stays until there is a new one
    profile("true", path=path)
    assert "Exit status 0" in read(path)[0] and read(path)[0].count("<html") == 1


def test_wrong_use(path, tmp_path):
    for words, said in [(["--output", path], "no program to run; see 'cowshed help profile'"),
                        (["--report", "true"], "no option '--report'"),
                        (["--output", str(tmp_path / "no" / "page"), "true"], "can't be written"),
                        (["--output"], "needs a value")]:
        done = subprocess.run([COMMAND, "profile", *words], capture_output=True, text=True)
        assert done.returncode == 2 and said in done.stderr, done.stderr
    done = subprocess.run([COMMAND, "run", "--output", path, "true"], capture_output=True,
                          text=True)
    assert done.returncode == 2 and "no option" in done.stderr


def test_signals_reach_the_program(path):
    text = "import signal, time\nprint('up', flush=True)\nsignal.pause()"
    child = subprocess.Popen([COMMAND, "profile", "--output", path, sys.executable, "-c", text],
                             stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert child.stdout.readline() == "up\n"
    child.send_signal(signal.SIGTERM)
    assert child.wait(50) == -signal.SIGTERM
    child.stdout.close()
    child.stderr.close()
    assert "Ended by signal 15" in read(path)[0]


def test_the_program_gets_no_descriptor(path, tmp_path):
    text = "import os, sys; sys.stdout.write(' '.join(sorted(os.listdir('/proc/self/fd'))))"
    # A threshold that nothing reaches: the engine has descriptors, too.
    words = "--threshold", "1T", sys.executable, "-c", text
    assert profile(*words, path=path).stdout == subprocess.run(
        [COMMAND, "run", *words], capture_output=True, text=True, timeout=50).stdout


def test_as_a_module(tmp_path):
    script = tmp_path / "script.py"
    script.write_text("import sys; print(sys.argv[1:])")
    done = subprocess.run([sys.executable, "-m", "cowshed", "profile", "--threshold", "2M",
                           str(script), "--output"], capture_output=True, text=True, timeout=50,
                          cwd=tmp_path)
    assert done.returncode == 0 and done.stdout == "['--output']\n"
    assert "script.py" in read(tmp_path / "cowshed-profile.html")[0]


def test_a_browser_shows_it(path, tmp_path):
    browser = next(filter(None, map(shutil.which, (
        "chromium-headless-shell", "chromium", "chromium-browser", "google-chrome"))), None)
    if browser is None:
        pytest.skip("no Chromium: install chromium-headless-shell or chromium")
    watched(path, 0)
    command = [browser, "--headless", "--no-sandbox", "--disable-gpu", "--virtual-time-budget=1000",
               f"--user-data-dir={tmp_path / 'browser'}", "--window-size=1000,1200"]
    environ = {name: value for name, value in os.environ.items() if name != "LD_PRELOAD"}
    dom = subprocess.run([*command, "--dump-dom", f"file://{path}"], capture_output=True, text=True,
                         timeout=50, env=environ)
    assert dom.returncode == 0 and dom.stdout.count("</svg>") == 2, dom.stderr
    picture = tmp_path / "page.png"
    subprocess.run([*command, f"--screenshot={picture}", f"file://{path}"], capture_output=True,
                   timeout=50, check=True, env=environ)
    image = pytest.importorskip("PIL.Image", reason="pillow is not installed").open(picture)
    colors = {color for _, color in image.convert("RGB").getcolors(1 << 20)}
    image.close()
    # Private, shared and unmapped memory, and a fork.
    assert {(0xf0, 0xa3, 0x5e), (0x7f, 0xb3, 0xe6), (0xc9, 0xd6, 0xe2),
            (0x66, 0x39, 0xba)} <= colors
