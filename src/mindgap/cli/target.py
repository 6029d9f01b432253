"""``path/to/file.py:name``: the user's own function, loaded and called."""

import importlib
import importlib.util
import os
import sys
import traceback
from types import ModuleType
from typing import Any

from mindgap.core import InputError, MindgapError, Subject, unknown_name
from mindgap.core.files import expanded
from mindgap.training.fitted import Fitted


def load_target(text: str, what: str = "make_subject") -> Any:
    """Load what ``file.py:name`` or ``package.module:name`` names; call it if it is a function."""
    found, (place, _, name) = find_target(text, what), text.rpartition(":")
    return _guarded(found, place, name) if callable(found) else found


def load_subject(text: str) -> Subject | Fitted:
    """Load a subject, or what ``fit`` returned, from a function of the user's."""
    found = load_target(text)
    if not isinstance(found, Subject | Fitted):
        raise InputError(
            f"{text} must return a mindgap.Subject, got {type(found).__name__}. Return "
            "Subject(model, loss, (inputs, targets), test=(inputs, targets))."
        )
    return found


def find_target(text: str, what: str) -> Any:
    """Find what ``file.py:name`` names; a function is not called."""
    place, _, name = text.rpartition(":")
    if not place or not name:
        raise InputError(
            f"The target must look like path/to/file.py:{what}, got {text!r}. Name file and "
            "function."
        )
    module = _module(place)
    if not hasattr(module, name):
        public = [known for known in vars(module) if not known.startswith("_")]
        raise unknown_name(f"The function in {place}", name, public)
    return getattr(module, name)


def _module(place: str) -> ModuleType:
    if not place.endswith(".py"):
        imported: ModuleType = _guarded(lambda: importlib.import_module(place), place, "import")
        return imported
    path = expanded(place)
    if not path.is_file():
        raise InputError(f"The target must be in an existing file, got {place!r}. Check the path.")
    spec = importlib.util.spec_from_file_location(f"mindgap_target_{path.stem}", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    if str(path.resolve().parent) not in sys.path:
        sys.path.insert(0, str(path.resolve().parent))
    loader = spec.loader
    _guarded(lambda: loader.exec_module(module), place, "import")
    return module


def _guarded(function: Any, place: str, name: str) -> Any:
    try:
        return function()
    except MindgapError:
        raise
    except (Exception, SystemExit) as error:
        if os.environ.get("MINDGAP_TRACEBACK"):
            raise
        frames = [
            frame
            for frame in traceback.extract_tb(error.__traceback__)
            if frame.filename.endswith(place)
        ]
        where = f" in line {frames[-1].lineno}" if frames else ""
        text = " ".join(str(error).split())[:200]
        told = f"sys.exit({text})" if isinstance(error, SystemExit) else _named(error, text)
        raise InputError(
            f"{name} of {place} must run without an error, got {told}{where}. Correct it "
            "(MINDGAP_TRACEBACK=1 shows the whole traceback)."
        ) from error


def _named(error: BaseException, text: str) -> str:
    return f"{type(error).__name__}: {text}"
