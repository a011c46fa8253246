import hashlib
import os
import signal
from pathlib import Path

from hypothesis import settings

# numba's cache does not notice a change in a module that a compiled function calls into. So tests keep
# one cache for each state of the sources (set before anything imports numba).
ROOT = Path(__file__).parents[1]
SOURCES = sorted((ROOT / "src").rglob("*.py"))
STATE = hashlib.sha256(b"".join(p.read_bytes() for p in SOURCES)).hexdigest()[:16]
os.environ.setdefault("NUMBA_CACHE_DIR", str(ROOT / ".numba_cache" / STATE))

# Compilation and loaded machines make single examples slow; that is no failure. CI repeats the same
# examples, so that a red run can be repeated.
settings.register_profile("default", deadline=None)
settings.register_profile("ci", deadline=None, derandomize=True)
settings.load_profile("ci" if os.environ.get("CI") else "default")

# A shell's background job ignores control-C, and so would every command that a test starts and stops.
if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
