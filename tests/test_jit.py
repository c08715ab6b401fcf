"""Where compiled kernels are kept, and what is said while they are made."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

import boxmatch

SHOW_FOLDER = "from boxmatch.kernels.jit import cache_folder; print(cache_folder())"
MATCH = """
import numpy as np
import boxmatch as bm

m = bm.Matcher(bm.Schema({"x": "int", "s": "string"}))
m.subscribe_many([{"id": n, "filter": f"x >= {n} OR s = 'a'"} for n in range(5)])
m.subscribe(9, "x = 3")
assert sorted(m.match({"x": 3})) == [0, 1, 2, 3, 9]
assert m.count({"x": 3}) == 5
assert m.count_batch(np.full((300, 2), np.nan)).sum() == 0
assert m.match_batch([{"x": 3}] * 300).counts.tolist() == [5] * 300
"""

MATCH_TEXTS_AND_LISTS = """
import boxmatch as bm

schema = {"x": "int", "y": "float", "s": "string", "tags": "list of string", "ns": "list of float"}
m = bm.Matcher(schema)
event = {"x": 5, "y": 3.0, "s": "aab", "tags": ["a", "b"], "ns": [1.0, 3.0]}
filters = ["s LIKE '%a%' AND x > 3", "s RLIKE 'a+b' OR y * 2 > x", "'a' = ANY(tags)", "x = 5"]
filters += ["ANY(ns) > 2 AND x = 5", "tags @> ARRAY['a', 'b']", "NOT s LIKE '%c%'", "x + 1 > y"]
for number, filter in enumerate(filters):
    m.subscribe(number, filter)
for _ in range(3):
    assert sorted(m.match(event))[:8] == list(range(8))
    assert m.match_batch([event] * 300).counts[0] == m.count_batch([event] * 300)[0] == len(m)
    m.match_batch([event] * 300, max_false_positive_rate=0.3)
    m.nearest(event)
    m.compact()
    m.subscribe_many(
        [{"id": len(m) + n, "filter": filters[n % 8]} for n in range(100)]
    )
"""
MATCH_SAVED = """
import tempfile
import numpy as np
import boxmatch as bm

m = bm.Matcher({"x": "int", "y": "float"})
lows = np.arange(10_000.0).reshape(-1, 2)
m.subscribe_boxes(np.arange(5_000), lows, lows + 5)
events = lows[:300] + 1
with tempfile.TemporaryDirectory() as folder:
    m.save(folder)
    m = bm.Matcher.load(folder)
    for _ in range(2):
        assert m.match_batch(events).counts.sum() == m.count_batch(events).sum() > 0
        m.match_batch(events, max_false_positive_rate=0.3)
        m.match({"x": 3}, max_false_positive_rate=0.3)
        for id in range(400):
            m.unsubscribe(id)
            m.subscribe(id, "x > 3")
        m.compact()
"""
MOVE = """
import tempfile
import boxmatch as bm

schemas = {"one": {"x": "int", "y": "float", "s": "string"}, "two": {"x": "int", "u": "float"}}
two = {"a": {"x": (1, 3)}, "b": {"y": (2, 3)}}
with tempfile.TemporaryDirectory() as folder, bm.Spaces.open(folder, schemas) as spaces:
    spaces.load(
        subscriptions={str(n): {"x": (n, n + 5)} for n in range(100)},
        publications={n: {"x": n, "y": 2} for n in range(50)},
    )
    spaces.subscribe("s", two["a"])
    spaces.subscribe("t", regions=two, region_filter="a AND b")
    spaces.publish(50, {"u": 2, "s": "a", "y": 1.5}, ttl=100)
    spaces.publish(51, regions=two, region_filter="a OR b")
    spaces.update_publication(50, {"x": 9})
    spaces.update_publication(51, regions={"a": {"x": 5}})
    spaces.update_subscription("t", regions={"a": {"x": (1, 7)}})
    spaces.update_publications(range(50), [{"x": n + 5} for n in range(50)])
    spaces.changes_between({"x": 3}, {"x": 9})
    assert spaces.matches_of_subscription("9")
    spaces.retract(51)
    spaces.unsubscribe("t")
"""


def run(
    script: str, *, package: Path | None = None, **environment: str | Path
) -> subprocess.CompletedProcess[str]:
    """Run a script with only the given places in its environment."""
    kept = {
        name: value
        for name, value in os.environ.items()
        if name not in ("NUMBA_CACHE_DIR", "XDG_CACHE_HOME", "HOME", "TMPDIR")
    }
    source = package or Path(boxmatch.__file__).parent
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", script],
        env=kept
        | {"PYTHONPATH": str(source.parent)}
        | {name: str(value) for name, value in environment.items()},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done


@pytest.fixture
def blocked(tmp_path: Path) -> Path:
    """A place where nothing can be made, not even by root: below a plain file."""
    (tmp_path / "file").write_text("")
    return tmp_path / "file" / "folder"


def test_the_first_place_that_can_be_written(tmp_path: Path, blocked: Path) -> None:
    chosen, cache = tmp_path / "chosen", tmp_path / "cache"
    home, temporary = tmp_path / "home", tmp_path / "temporary"
    temporary.mkdir()
    places = {"NUMBA_CACHE_DIR": chosen, "XDG_CACHE_HOME": cache, "HOME": home}
    for expected in (chosen / "boxmatch", cache / "boxmatch", home / ".cache" / "boxmatch", None):
        shown = Path(run(SHOW_FOLDER, TMPDIR=temporary, **places).stdout.strip())
        assert shown.is_dir()
        if expected is not None:
            assert shown.parent == expected
            # The next time this one is missing, or it cannot be written.
            name = next(name for name, place in places.items() if place != blocked)
            places[name] = blocked
        else:
            assert shown.parent.parent == temporary


def test_places_that_are_not_set(tmp_path: Path) -> None:
    shown = run(SHOW_FOLDER, NUMBA_CACHE_DIR="", XDG_CACHE_HOME="", HOME=tmp_path)
    assert Path(shown.stdout.strip()).parent == tmp_path / ".cache" / "boxmatch"


def test_without_any_place_kernels_are_compiled_all_the_same(blocked: Path) -> None:
    script = f"""
import tempfile
tempfile.tempdir = {str(blocked)!r}
from boxmatch.kernels import jit
assert jit.cache_folder() is None
assert jit.kernel(lambda x: x + 1)(1) == 2
"""
    places = {"NUMBA_CACHE_DIR": blocked, "XDG_CACHE_HOME": blocked, "HOME": blocked}
    run(script, **places)


def test_a_system_without_a_temporary_folder(tmp_path: Path, blocked: Path) -> None:
    script = f"""
import tempfile
def nowhere():
    raise FileNotFoundError("no usable temporary directory")
tempfile.gettempdir = nowhere
{SHOW_FOLDER}
"""
    assert run(script, HOME=tmp_path).stdout.strip() != "None"
    assert run(script, HOME=blocked).stdout.strip() == "None"


def test_other_users_of_numba_keep_their_folder(tmp_path: Path) -> None:
    script = """
import numba
before = numba.config.CACHE_DIR
import boxmatch.indexes.scan
assert numba.config.CACHE_DIR == before
"""
    run(script, HOME=tmp_path)
    run(script, HOME=tmp_path, NUMBA_CACHE_DIR=tmp_path / "chosen")


def test_threads_that_import_kernels_at_once_keep_it_too(tmp_path: Path) -> None:
    script = """
import sys, textwrap, threading
import numba
from boxmatch.kernels.jit import cache_folder, kernel
sys.setswitchinterval(1e-6)
before, folders = numba.config.CACHE_DIR, set()

def decorate():
    for _ in range(200):
        made = kernel(textwrap.dedent)
        folders.add(made._cache.cache_path.startswith(str(cache_folder())))

threads = [threading.Thread(target=decorate) for _ in range(8)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
assert numba.config.CACHE_DIR == before
assert folders == {True}
"""
    run(script, HOME=tmp_path)


def test_changed_sources_get_a_folder_of_their_own(tmp_path: Path) -> None:
    """Numba does not notice changes in kernels that a kernel calls."""
    package = tmp_path / "boxmatch"
    shutil.copytree(
        Path(boxmatch.__file__).parent, package, ignore=shutil.ignore_patterns("__pycache__")
    )
    folders = [run(SHOW_FOLDER, package=package, HOME=tmp_path).stdout for _ in range(2)]
    for changed in ("indexes/tile/search.py", "kernels/jit.py", "model/axis.py"):
        with open(package / changed, "a") as source:
            source.write("# changed\n")
        folders.append(run(SHOW_FOLDER, package=package, HOME=tmp_path).stdout)
    assert folders[0] == folders[1]
    assert len(set(folders)) == 4
    with open(package / "engine" / "explain.py", "a") as source:  # no kernel has anything of it
        source.write("# changed\n")
    assert run(SHOW_FOLDER, package=package, HOME=tmp_path).stdout == folders[-1]


COMPILE = """
from boxmatch.kernels.jit import notice
from boxmatch.model.bounds_kernels import _is_bit, _is_whole

assert _is_bit(1)
assert _is_whole(1)
assert notice.compiled == 2
"""


def test_compilation_is_announced_once_for_a_cache(tmp_path: Path) -> None:
    (said,) = run(COMPILE, NUMBA_CACHE_DIR=tmp_path).stderr.splitlines()
    assert said.startswith("boxmatch: compiling kernels for this machine, ")
    assert f"cached in {tmp_path}" in said
    assert run(COMPILE.replace("(1)", "(1.0)"), NUMBA_CACHE_DIR=tmp_path).stderr == ""
    # Who compiles something else a day later is told so again.
    (mark,) = tmp_path.rglob("announced")
    os.utime(mark, (0, 0))
    later = run(COMPILE.replace("(1)", "(True)"), NUMBA_CACHE_DIR=tmp_path)
    assert len(later.stderr.splitlines()) == 1
    assert mark.stat().st_mtime > 0


def test_compilation_without_a_cache_is_announced_in_every_process(blocked: Path) -> None:
    script = f"import tempfile; tempfile.tempdir = {str(blocked)!r}{COMPILE}"
    places = {"NUMBA_CACHE_DIR": blocked, "XDG_CACHE_HOME": blocked, "HOME": blocked}
    for _ in range(2):
        (said,) = run(script, **places).stderr.splitlines()
        assert said.endswith("set NUMBA_CACHE_DIR")


@pytest.mark.skipif(sys.platform == "win32", reason="there are no pseudo-terminals")
@pytest.mark.parametrize("captured", [False, True])
def test_a_terminal_shows_a_progress_bar(tmp_path: Path, captured: bool) -> None:
    import pty

    replaced = "import os, sys; sys.stderr = os.fdopen(os.dup(2), 'w')\n" if captured else ""
    controller, terminal = pty.openpty()
    with open(controller, "rb", buffering=0) as shown:
        with open(terminal, "wb", buffering=0) as screen:
            subprocess.run(
                [sys.executable, "-c", replaced + COMPILE],
                env=os.environ | {"NUMBA_CACHE_DIR": str(tmp_path), "TERM": "xterm"},
                stderr=screen,
                timeout=300,
                check=True,
            )
        os.set_blocking(controller, False)
        text = (shown.read(1 << 20) or b"").decode()
    assert text.count("compiling kernels") == 1
    assert bool(re.search(r"kernels .*\D2/\d", text)) is not captured


@pytest.mark.slow
def test_a_cold_cache_is_announced_once_and_then_warm(tmp_path: Path) -> None:
    cold = run(MATCH, NUMBA_CACHE_DIR=tmp_path)
    assert cold.stderr.count("compiling kernels") == 1
    assert len(cold.stderr.splitlines()) == 1
    assert cold.stdout == ""
    warm = run(MATCH, NUMBA_CACHE_DIR=tmp_path)
    assert warm.stderr == warm.stdout == ""


@pytest.mark.slow
def test_warming_up_leaves_nothing_to_compile(tmp_path: Path) -> None:
    warm_up = """
import sys
from boxmatch.cli import main
sys.argv = ["boxmatch", "warmup"]
main()
"""
    first = run(warm_up, NUMBA_CACHE_DIR=tmp_path)
    assert "compiling" in first.stderr
    assert re.match(r"Compiled \d\d+ kernels in [\d.]+ s\.\n", first.stdout)
    second = run(warm_up, NUMBA_CACHE_DIR=tmp_path)
    assert second.stderr == ""
    assert second.stdout.startswith("All kernels are compiled already.\n")
    assert str(tmp_path) in second.stdout
    (mark,) = tmp_path.rglob("announced")
    os.utime(mark, (0, 0))  # what is compiled from now on is announced again
    for script in (MATCH, MATCH_TEXTS_AND_LISTS, MATCH_SAVED, MOVE):
        assert run(script, NUMBA_CACHE_DIR=tmp_path).stderr == ""


IN_BACKGROUND = """
import os, subprocess, sys
import boxmatch as bm
from boxmatch.kernels.background import Stage, background

helpers = []
class Popen(subprocess.Popen):
    def __init__(self, *arguments, **options):
        super().__init__(*arguments, **options)
        helpers.append(self.pid)
subprocess.Popen = Popen

m = bm.Matcher({"x": "int"})
m.subscribe_many([{"id": n, "filter": {"x": (n, n + 1)}} for n in range(50)])

def check():
    assert sorted(m.match({"x": 3})) == [2, 3]
    assert m.match_batch([{"x": n} for n in range(60)]).counts.sum() == 100

check()
[view] = m.snapshot.views
"""
BEGUN = """
assert view.store.interim
background.wait(Stage.SCAN)
assert background._running
check()
"""
END_HELPER = """
import signal, time
while not helpers:
    time.sleep(0.01)
for helper in helpers:
    os.kill(helper, signal.SIGKILL)
"""


def in_background(script: str, **environment: str | Path) -> subprocess.CompletedProcess[str]:
    return run(IN_BACKGROUND + script, BOXMATCH_BACKGROUND_COMPILATION="1", **environment)


@pytest.mark.skipif(sys.platform == "win32", reason="there are no such signals")
def test_a_program_ends_while_kernels_are_compiled(tmp_path: Path) -> None:
    done = in_background(BEGUN + END_HELPER, NUMBA_CACHE_DIR=tmp_path)
    (said,) = done.stderr.splitlines()
    assert "in the background" in said
    assert str(tmp_path) in said
    # What there is of it is used by the next, of which nobody says anything again.
    again = in_background(
        "assert background._stage == Stage.SCAN" + END_HELPER, NUMBA_CACHE_DIR=tmp_path
    )
    assert again.stderr == ""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork")
def test_a_forked_process_answers_too(tmp_path: Path) -> None:
    script = """
background.wait(Stage.SCAN)
pid = os.fork()
if pid == 0:
    helpers.clear()
    check()
    assert background._running
    m.subscribe(99, "x = 3")
    assert sorted(m.match({"x": 3})) == [2, 3, 99]
"""
    both = END_HELPER + "assert pid == 0 or os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0"
    in_background(script + both, NUMBA_CACHE_DIR=tmp_path)


def test_kernels_are_compiled_here_where_no_helper_can_be(tmp_path: Path) -> None:
    """As in a program that embeds Python."""
    script = """
background.wait(Stage.SCAN)
assert not helpers
check()
os._exit(0)
"""
    preamble = "import sys; sys.executable = '/opt/editor'"
    environment = {"NUMBA_CACHE_DIR": tmp_path, "BOXMATCH_BACKGROUND_COMPILATION": "1"}
    run(preamble + IN_BACKGROUND + script, **environment)


def test_nothing_is_compiled_in_the_background_where_it_is_turned_off(tmp_path: Path) -> None:
    script = """
assert not view.store.interim
assert not helpers
"""
    environment = {"NUMBA_CACHE_DIR": tmp_path, "NUMBA_DISABLE_JIT": "1"}
    assert in_background(script, **environment).stderr == ""


@pytest.mark.slow
def test_two_processes_wait_for_the_same_kernels(tmp_path: Path) -> None:
    script = """
background.wait(Stage.LISTS)
m._stores.settle()
check()
assert not any(view.store.interim for view in m.snapshot.views)
"""
    home = tmp_path / "home"
    with ThreadPoolExecutor(2) as pool:
        both = [pool.submit(in_background, script, HOME=home) for _ in range(2)]
    assert sum(one.result().stderr.count("in the background") for one in both) == 1
    warm = "assert not view.store.interim; assert not helpers"
    assert in_background(warm, HOME=home).stderr == ""
    # A package that was moved, or another processor, has kernels of its own.
    other = "assert view.store.interim" + END_HELPER
    in_background(other, HOME=home, NUMBA_CPU_NAME="generic", NUMBA_CPU_FEATURES="")
    moved = tmp_path / "boxmatch"
    shutil.copytree(Path(boxmatch.__file__).parent, moved)
    environment = {"HOME": home, "BOXMATCH_BACKGROUND_COMPILATION": "1"}
    run(IN_BACKGROUND + other, package=moved, **environment)


def test_importing_says_nothing() -> None:
    done = run("import boxmatch; boxmatch.Matcher; boxmatch.Schema")
    assert done.stderr == done.stdout == ""


COMPILE_TOGETHER = """
import sys, time
from pathlib import Path
import numpy as np
from numba.core.caching import IndexDataCacheFile
from boxmatch.kernels.jit import kernel
from widening import widen

me, folder = sys.argv[1], Path(sys.argv[2])
other = {"ints": "floats", "floats": "ints"}.get(me)


def pause(step, before, after, calls=1):
    \"\"\"Wait for a file before a step of Numba's cache, and leave one after so many calls.\"\"\"
    original = getattr(IndexDataCacheFile, step)
    called = []

    def paused(self, *arguments):
        until = time.monotonic() + 2
        while before and not (folder / before).exists() and time.monotonic() < until:
            time.sleep(0.01)
        result = original(self, *arguments)
        called.append(step)
        if len(called) == calls:
            (folder / after).touch()
        return result

    setattr(IndexDataCacheFile, step, paused)


if other:
    # Both look for a free name before either takes one, and the code of ints comes last.
    pause("_save_index", f"looked-{other}" if me == "ints" else "index-ints", f"index-{me}")
    pause("_save_data", "data-floats" if me == "ints" else None, f"data-{me}")
    pause("_load_index", None, f"looked-{me}", calls=2)  # the first is before it compiles
values = np.array([1, 2]) if me == "ints" else np.array([0.5, 1.5])
assert (kernel(widen)(values) == values).all()
"""

WIDEN = """
import numpy as np

def widen(values):
    wide = np.empty(len(values), np.float64)
    for place in range(len(values)):
        wide[place] = values[place]
    return wide
"""


def test_two_processes_that_compile_one_kernel_keep_their_signatures_apart(tmp_path: Path) -> None:
    (tmp_path / "widening.py").write_text(WIDEN)
    (tmp_path / "steps").mkdir()
    paths = f"{Path(boxmatch.__file__).parent.parent}{os.pathsep}{tmp_path}"

    def start(name: str) -> subprocess.Popen[bytes]:
        arguments = [sys.executable, "-c", COMPILE_TOGETHER, name, str(tmp_path / "steps")]
        environment = os.environ | {"PYTHONPATH": paths, "NUMBA_CACHE_DIR": str(tmp_path / "cache")}
        return subprocess.Popen(arguments, env=environment)

    together = [start("ints"), start("floats")]
    assert [process.wait(120) for process in together] == [0, 0]
    assert start("later").wait(120) == 0
