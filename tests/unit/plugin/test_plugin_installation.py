"""How the plugin gets into SGLang: by its plugin framework or by the `.pth` file, or not at all.

Each test starts a fresh Python with a tree of modules that has SGLang's names.
"""

import json
import os
import subprocess
import sys
import tempfile
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import cyclewatch_sglang as plugin

PLUGIN = Path(plugin.__file__)
PTH = PLUGIN.with_suffix(".pth")

SCHEDULER = '''
class ForwardMode:
    name = "DECODE"

class Batch:
    forward_mode = ForwardMode()
    reqs = [1, 2]

class Scheduler:
    """As much of SGLang's scheduler as makes cycles."""
    device = "cpu"
    server_args = type("ServerArgs", (), {"port": 30000, "api_key": "secret", "model_path": "tiny"})()
    calls = 0
    def __init__(self):
        self.waiting_queue, self.running_batch = [], Batch()
    def process_input_requests(self, requests):
        self.calls += 1
    def get_next_batch_to_run(self):
        return Batch()
    def run_batch(self, batch):
        self.calls += 1
        return object()
    def process_batch_result(self, batch, result):
        self.calls += 1
    def turn(self, times):
        for _ in range(times):
            self.process_input_requests([])
            batch = self.get_next_batch_to_run()
            self.process_batch_result(batch, self.run_batch(batch))
        return self.calls
'''
HOOK_REGISTRY = """
import contextvars, functools, importlib
from collections import defaultdict
from enum import Enum

_current_plugin_source = contextvars.ContextVar("_current_plugin_source", default=None)

class HookType(Enum):
    AROUND = "around"

class HookRegistry:
    _hooks, _patched, applied = defaultdict(list), set(), 0
    @classmethod
    def register(cls, target, hook, hook_type):
        assert hook_type is HookType.AROUND
        cls._hooks[target].append(hook)
    @classmethod
    def apply_hooks(cls):
        cls.applied += 1
        for target, hooks in cls._hooks.items():
            if target in cls._patched:
                continue
            cls._patched.add(target)
            module, owner, name = target.rsplit(".", 2)
            owner = getattr(importlib.import_module(module), owner)
            wrapped = getattr(owner, name)
            for hook in hooks:
                wrapped = cls.wrap(wrapped, hook)
            setattr(owner, name, wrapped)
    @staticmethod
    def wrap(original, hook):
        @functools.wraps(original)
        def wrapper(*args, **kwargs):
            return hook(original, *args, **kwargs)
        return wrapper
"""
PLUGINS = """
from sglang.srt.plugins.hook_registry import HookRegistry, _current_plugin_source

def load_plugins(*plugins):
    for plugin in plugins:
        token = _current_plugin_source.set("a plugin")
        try:
            plugin()
        finally:
            _current_plugin_source.reset(token)
    HookRegistry.apply_hooks()
"""
PRELUDE = """
import json, sys, os, glob
def rings():
    return glob.glob(os.environ.get("CYCLEWATCH_RING_DIR", "/nowhere") + "/*")
def content(path):
    with open(path, "rb") as file:
        return file.read()
def ring():
    (path,) = rings()
    data = content(path)
    return json.loads(data[40:40 + int.from_bytes(data[20:24], "little")])
def finders():
    return [finder for finder in sys.meta_path if type(finder).__module__ == "cyclewatch_sglang"]
"""


@pytest.fixture(name="directory")
def _directory() -> Iterator[Path]:
    """A directory on tmpfs."""
    if not Path("/dev/shm").is_dir():
        pytest.skip("no /dev/shm: rings cannot be tried here")
    with tempfile.TemporaryDirectory(prefix="cw-test-", dir="/dev/shm") as directory:
        yield Path(directory)


@pytest.fixture(name="old")
def _old(tmp_path: Path) -> Path:
    """A tree like that of a version without plugin framework."""
    return write_tree(tmp_path / "old", {"sglang/srt/managers/scheduler.py": SCHEDULER})


@pytest.fixture(name="new")
def _new(tmp_path: Path) -> Path:
    """A tree like that of a version with plugin framework."""
    files = {
        "sglang/srt/managers/scheduler.py": "import sglang.srt.plugins\n" + SCHEDULER,
        "sglang/srt/plugins/__init__.py": PLUGINS,
        "sglang/srt/plugins/hook_registry.py": HOOK_REGISTRY,
    }
    return write_tree(tmp_path / "new", files)


def write_tree(root: Path, files: dict[str, str]) -> Path:
    for name, text in {"sglang/version.py": '__version__ = "9.8.7"\n', **files}.items():
        path = root / name
        for folder in [path.parent, *path.parent.parents]:
            if folder == root:
                break
            folder.mkdir(parents=True, exist_ok=True)
            (folder / "__init__.py").touch()
        path.write_text(text, encoding="utf-8")
    (root / "sglang/__init__.py").write_text("from sglang import version\n")
    return root


def run(code: str, tree: Path | None = None, ring_dir: Path | None = None, **environment: str) -> Any:
    """What `code` prints as JSON, run in a fresh Python that says nothing else."""
    variables = {name: value for name, value in os.environ.items() if not name.startswith(("CYCLEWATCH", "SGLANG"))}
    variables["PYTHONPATH"] = os.pathsep.join(str(path) for path in (PLUGIN.parent, tree) if path is not None)
    if ring_dir is not None:
        variables[plugin.RING_DIR_VARIABLE] = str(ring_dir)
    done = subprocess.run(
        # Without site-packages: the plugin may be installed in this environment, too.
        [sys.executable, "-S", "-W", "error", "-c", PRELUDE + textwrap.dedent(code)],
        env=variables | environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.stderr == ""
    assert done.returncode == 0
    return json.loads(done.stdout)


# Nothing by itself


def test_imports_nothing_but_the_standard_library() -> None:
    """In a clean interpreter the module brings no other module than the standard library's."""
    code = f"""
        import sys; sys.path.insert(0, {str(PLUGIN.parent)!r}); before = set(sys.modules)
        import cyclewatch_sglang
        print(sorted({{name.partition(".")[0] for name in set(sys.modules) - before}} - sys.stdlib_module_names))
    """
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-c", textwrap.dedent(code)], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "['cyclewatch_sglang']"


@pytest.mark.parametrize("entry", ["load", "arm"])
def test_inert_without_the_variable(entry: str, old: Path) -> None:
    """Without `CYCLEWATCH_RING_DIR` neither way does anything."""
    code = f"""
        import cyclewatch_sglang
        before = list(sys.meta_path)
        cyclewatch_sglang.{entry}()
        from sglang.srt.managers.scheduler import Scheduler
        print(json.dumps([before == sys.meta_path, hasattr(Scheduler.run_batch, "__wrapped__"), Scheduler().turn(3)]))
    """
    assert run(code, old) == [True, False, 9]


@pytest.mark.parametrize("tree", ["old", "new"])
@pytest.mark.parametrize(("allowed", "works"), [("", True), ("x, cyclewatch", True), ("x", False), (",", False)])
def test_allow_list(tree: str, allowed: str, works: bool, directory: Path, request: pytest.FixtureRequest) -> None:
    """`SGLANG_PLUGINS` switches the plugin off, also where SGLang does not know that variable."""
    code = f"""
        import cyclewatch_sglang
        cyclewatch_sglang.{"arm" if tree == "old" else "load"}()
        from sglang.srt.managers.scheduler import Scheduler
        print(json.dumps([Scheduler().turn(3), len(rings())]))
    """
    calls, rings = run(code, request.getfixturevalue(tree), directory, SGLANG_PLUGINS=allowed)
    assert (calls, bool(rings)) == (9, works)


def test_never_imports_the_scheduler_itself(old: Path, directory: Path) -> None:
    """Processes that do not need SGLang's scheduler are not made to load it."""
    code = """
        import cyclewatch_sglang
        cyclewatch_sglang.load(); cyclewatch_sglang.arm()
        import json.tool, sglang.srt
        print(json.dumps([name for name in sys.modules if "scheduler" in name]))
    """
    assert run(code, old, directory) == []


# Versions without plugin framework


def test_scheduler_imported_later(old: Path, directory: Path) -> None:
    """The hooks are there as soon as the scheduler's module has been imported, whoever imports it."""
    code = """
        import cyclewatch_sglang
        cyclewatch_sglang.arm()
        assert len(finders()) == 1
        from sglang.srt.managers.scheduler import Scheduler
        assert rings() == [], "no ring before the loop turns"
        print(json.dumps([Scheduler().turn(3), ring(), len(finders())]))
    """
    calls, identity, finders = run(code, old, directory)
    assert (calls, finders) == (9, 0)
    assert identity["hooks_applied"] == [
        "run_batch",
        "process_batch_result",
        "get_next_batch_to_run",
        "process_input_requests",
    ]
    assert {"on_idle", "pause_generation", "update_weights_from_disk"} < set(identity["hooks_missing"])
    assert identity["sglang_version"] == "9.8.7"
    assert identity["server"] == {"port": 30000, "model_path": "tiny"}
    assert (identity["tp_rank"], identity["pp_rank"], identity["synchronous"]) == (None, None, True)
    assert identity["parent_pid"] == os.getpid()


def test_scheduler_imported_before(old: Path, directory: Path) -> None:
    """A scheduler that is there already gets its hooks at once."""
    code = """
        from sglang.srt.managers.scheduler import Scheduler
        import cyclewatch_sglang
        cyclewatch_sglang.arm()
        print(json.dumps([finders(), Scheduler().turn(3), len(rings())]))
    """
    assert run(code, old, directory) == [[], 9, 1]


def test_import_stays_as_it_is(old: Path, directory: Path) -> None:
    """The imported module has the loader, the source and the cache it would have without the plugin."""
    code = """
        import cyclewatch_sglang
        cyclewatch_sglang.arm()
        import inspect, sglang.srt.managers.scheduler as module
        loader = module.__spec__.loader
        print(json.dumps([
            type(loader).__name__, loader is module.__loader__, "exec_module" in vars(loader),
            "class Scheduler" in inspect.getsource(module), module.__file__ == module.__spec__.origin,
        ]))
    """
    assert run(code, old, directory) == ["SourceFileLoader", True, False, True, True]


def test_looking_for_the_module_is_not_importing_it(old: Path, directory: Path) -> None:
    """Somebody may ask whether there is a scheduler first: its import is awaited all the same."""
    code = """
        import cyclewatch_sglang, importlib.util
        cyclewatch_sglang.arm()
        assert importlib.util.find_spec("sglang.srt.managers.scheduler") is not None
        from sglang.srt.managers.scheduler import Scheduler
        print(json.dumps([Scheduler().turn(3), len(rings()), len(finders())]))
    """
    assert run(code, old, directory) == [9, 1, 0]


def test_import_that_fails_first(old: Path, directory: Path) -> None:
    """An import that fails, fails as ever, and the next one is hooked."""
    code = """
        import cyclewatch_sglang
        cyclewatch_sglang.arm()
        from pathlib import Path
        path = Path(TREE) / "sglang/srt/managers/scheduler.py"
        text = path.read_text()
        path.write_text("raise ImportError('theirs')")
        try:
            import sglang.srt.managers.scheduler
        except ImportError as error:
            said = str(error)
        path.write_text(text + "\\n" * 99)
        import importlib; importlib.invalidate_caches()
        from sglang.srt.managers.scheduler import Scheduler
        print(json.dumps([said, Scheduler().turn(3), len(rings()), len(finders())]))
    """
    assert run(code.replace("TREE", repr(str(old))), old, directory) == ["theirs", 9, 1, 0]


def test_other_finders_are_asked(old: Path, directory: Path) -> None:
    """A finder of somebody else's, which comes after ours and asks all others, keeps working."""
    code = """
        import cyclewatch_sglang, importlib.util
        class Theirs:
            seen, asking = [], False
            def find_spec(self, name, path=None, target=None):
                if self.asking or not name.endswith(".scheduler"):
                    return None
                self.asking = True
                try:
                    self.seen.append(name)
                    return importlib.util.find_spec(name)
                finally:
                    self.asking = False
        sys.meta_path.insert(0, theirs := Theirs())
        cyclewatch_sglang.arm()
        from sglang.srt.managers.scheduler import Scheduler
        print(json.dumps([theirs.seen, Scheduler().turn(3), len(rings())]))
    """
    assert run(code, old, directory) == [["sglang.srt.managers.scheduler"], 9, 1]


# Versions with plugin framework


def test_finders_of_old_are_passed_by(old: Path, directory: Path) -> None:
    """What Python itself tolerates in `sys.meta_path` keeps no server from starting."""
    code = """
        import cyclewatch_sglang
        class OfOld:
            def find_module(self, name, path=None):
                return None
        class FirstOfAll:
            def find_spec(self, name, path=None, target=None):
                return None
        cyclewatch_sglang.arm()
        sys.meta_path[1:1] = [FirstOfAll(), OfOld()]
        import warnings
        warnings.simplefilter("ignore")
        from sglang.srt.managers.scheduler import Scheduler
        Scheduler().turn(3)
        print(json.dumps(len(rings())))
    """
    assert run(code, old, directory) == 1


def test_framework_loads_the_plugin(new: Path, directory: Path) -> None:
    """SGLang's framework installs the hooks through its registry; each function has one wrapper."""
    code = """
        import cyclewatch_sglang
        cyclewatch_sglang.arm()
        from sglang.srt.managers.scheduler import Scheduler
        from sglang.srt.plugins import load_plugins, HookRegistry
        alone = hasattr(Scheduler.run_batch, "__wrapped__")
        load_plugins(cyclewatch_sglang.load)
        cyclewatch_sglang.load(); cyclewatch_sglang.arm()
        once = not hasattr(Scheduler.run_batch.__wrapped__, "__wrapped__")
        print(json.dumps([alone, once, HookRegistry.applied, Scheduler().turn(3), ring()["hooks_applied"][0]]))
    """
    assert run(code, new, directory) == [False, True, 1, 9, "run_batch"]


def test_framework_loads_the_plugin_before_the_scheduler(new: Path, directory: Path) -> None:
    """A process that imports the scheduler after its plugins gets the hooks then, through the registry."""
    code = """
        import cyclewatch_sglang
        from sglang.srt.plugins import load_plugins, HookRegistry
        load_plugins(cyclewatch_sglang.load)
        from sglang.srt.managers.scheduler import Scheduler
        once = not hasattr(Scheduler.run_batch.__wrapped__, "__wrapped__")
        print(json.dumps([once, HookRegistry.applied, Scheduler().turn(3), len(rings())]))
    """
    assert run(code, new, directory) == [True, 2, 9, 1]


def test_plugins_after_ours_keep_their_hooks(new: Path, directory: Path) -> None:
    """A plugin that is loaded after this one and hooks the same function is not shut out."""
    code = """
        import cyclewatch_sglang
        from sglang.srt.managers.scheduler import Scheduler
        from sglang.srt.plugins import load_plugins
        from sglang.srt.plugins.hook_registry import HookRegistry, HookType
        seen = []
        def theirs(original, *args):
            seen.append(1)
            return original(*args)
        target = "sglang.srt.managers.scheduler.Scheduler.run_batch"
        load_plugins(cyclewatch_sglang.load, lambda: HookRegistry.register(target, theirs, HookType.AROUND))
        print(json.dumps([Scheduler().turn(3), len(seen), len(rings())]))
    """
    assert run(code, new, directory) == [9, 3, 1]


def test_hooks_the_registry_did_not_apply_are_told(new: Path, directory: Path) -> None:
    """The registry only logs what it cannot apply; the ring says which hooks are missing."""
    code = """
        import cyclewatch_sglang
        from sglang.srt.managers.scheduler import Scheduler
        from sglang.srt.plugins import load_plugins, HookRegistry
        HookRegistry._patched.add("sglang.srt.managers.scheduler.Scheduler.get_next_batch_to_run")
        load_plugins(cyclewatch_sglang.load)
        Scheduler().turn(3)
        print(json.dumps(ring()))
    """
    identity = run(code, new, directory)
    assert "get_next_batch_to_run" in identity["hooks_missing"]
    assert "get_next_batch_to_run" not in identity["hooks_applied"]


# What goes wrong stays here


@pytest.mark.parametrize("failure", ["sys.exit('ours')", "raise RuntimeError('ours')", "raise SystemExit"])
def test_failure_while_loading_stays_here(failure: str, new: Path, directory: Path) -> None:
    """Neither an exception nor an exit of the plugin's own reaches SGLang while it loads."""
    code = f"""
        import cyclewatch_sglang, logging
        logging.disable()
        def fail(*_):
            {failure}
        from sglang.srt.managers.scheduler import Scheduler
        from sglang.srt.plugins import HookRegistry
        HookRegistry.register = fail
        cyclewatch_sglang.load()
        print(json.dumps(Scheduler().turn(3)))
    """
    assert run(code, new, directory) == 9


def test_failure_after_the_import_stays_here(old: Path, directory: Path) -> None:
    """A failure while the hooks are put in does not spoil the import of SGLang's module."""
    code = """
        import cyclewatch_sglang, logging
        logging.disable()
        cyclewatch_sglang.Installation.install = lambda self: sys.exit("ours")
        cyclewatch_sglang.arm()
        from sglang.srt.managers.scheduler import Scheduler
        print(json.dumps(Scheduler().turn(3)))
    """
    assert run(code, old, directory) == 9


def test_directory_that_is_missing(old: Path, directory: Path) -> None:
    """Without its directory the server runs unmeasured, and says so in one line."""
    code = """
        import cyclewatch_sglang, logging, io
        logging.basicConfig(stream=(log := io.StringIO()), format="%(name)s %(message)s")
        cyclewatch_sglang.arm()
        from sglang.srt.managers.scheduler import Scheduler
        print(json.dumps([Scheduler().turn(100), log.getvalue()]))
    """
    calls, log = run(code, old, directory / "missing")
    assert calls == 300
    assert log.count("\n") == 1
    assert log.startswith("cyclewatch_sglang cyclewatch: cycles are not measured, there is no ring: ")
    assert f"{directory / 'missing'} is not there" in log


def test_who_writes_is_not_told_while_there_is_no_directory(old: Path, directory: Path) -> None:
    """To look up the versions of the packages takes milliseconds, and is tried again and again."""
    code = """
        import cyclewatch_sglang, logging
        logging.disable()
        cyclewatch_sglang.identity = lambda scheduler: sys.exit("asked")
        cyclewatch_sglang.arm()
        from sglang.srt.managers.scheduler import Scheduler
        Scheduler().turn(3)
        print(json.dumps(cyclewatch_sglang._installation.hooks.disabled))
    """
    assert run(code, old, directory / "missing") == plugin.RUNNING


def test_capacity_that_is_no_number(old: Path, directory: Path) -> None:
    """A capacity that is no number is complained of, and the default taken."""
    code = """
        import cyclewatch_sglang, logging
        logging.disable()
        cyclewatch_sglang.arm()
        from sglang.srt.managers.scheduler import Scheduler
        Scheduler().turn(3)
        print(json.dumps(os.path.getsize(rings()[0])))
    """
    assert run(code, old, directory, CYCLEWATCH_RING_RECORDS="many") == 4096 + 16384 * 128
    next(directory.iterdir()).unlink()
    assert run(code, old, directory, CYCLEWATCH_RING_RECORDS="100") == 4096 + 100 * 128


def test_forked_child_makes_its_own_ring(old: Path, directory: Path) -> None:
    """A child whose loop turns has a ring by its own pid; one whose loop does not has none."""
    code = """
        import cyclewatch_sglang
        cyclewatch_sglang.arm()
        from sglang.srt.managers.scheduler import Scheduler
        scheduler = Scheduler()
        scheduler.turn(3)
        for times in (0, 3):
            if not (pid := os.fork()):
                scheduler.turn(times)
                os._exit(0)
            os.waitpid(pid, 0)
        scheduler.turn(3)
        data = content([path for path in rings() if f"-{os.getpid()}-" in path][0])
        print(json.dumps([len(rings()), [data[4096 + 128 * n] for n in range(7)]]))
    """
    assert run(code, old, directory) == [2, [1, 2, 3, 4, 5, 6, 0]]


# The .pth file


@pytest.fixture(name="site")
def _site(tmp_path: Path) -> Path:
    """A folder for packages with the `.pth` file in it, but not yet the module."""
    site = tmp_path / "site"
    site.mkdir()
    (site / PTH.name).write_bytes(PTH.read_bytes())
    return site


def loaded_by_pth(site: Path, ring_dir: Path | None = None) -> Any:
    code = f"""
        sys.path[:] = [path for path in sys.path if path != {str(PLUGIN.parent)!r}]
        before = set(sys.modules)
        import site
        site.addsitedir({str(site)!r})
        print(json.dumps([len(finders()), sorted(name for name in set(sys.modules) - before if "cyclewatch" in name)]))
    """
    return run(code, ring_dir=ring_dir)


def test_pth_is_inert_without_the_variable(site: Path) -> None:
    """Without the variable the module is not even imported."""
    (site / PLUGIN.name).write_bytes(PLUGIN.read_bytes())
    assert loaded_by_pth(site) == [0, []]


def test_pth_arms_with_the_variable(site: Path, directory: Path) -> None:
    """With it, every Python process waits for SGLang's scheduler."""
    (site / PLUGIN.name).write_bytes(PLUGIN.read_bytes())
    assert loaded_by_pth(site, directory) == [1, ["cyclewatch_sglang"]]


@pytest.mark.parametrize("module", [None, "def broken(:", "raise RuntimeError", "import sys; sys.exit"], ids=str)
def test_pth_never_fails(site: Path, module: str | None, directory: Path) -> None:
    """A module that is missing or broken makes no noise at the start of any Python."""
    if module is not None:
        (site / PLUGIN.name).write_text(module)
    assert loaded_by_pth(site, directory)[0] == 0


def test_pth_is_one_line() -> None:
    """Python executes a line of such a file only if it begins with `import`."""
    (line,) = PTH.read_text(encoding="ascii").splitlines()
    assert line.startswith("import os; ")
