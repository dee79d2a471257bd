"""Replace attributes of other modules, and put them back."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

_ABSENT = object()


class Patches:
    """A list of replaced attributes, restored in reverse order, and of other things to undo."""

    def __init__(self) -> None:
        self._saved: list[tuple[Any, str, Any]] = []
        self._later: list[Callable[[], Any]] = []

    def set(self, owner: Any, name: str, value: Any) -> Any:
        """Replace owner.name; returns what was there (None when nothing was)."""
        old = vars(owner).get(name, _ABSENT)
        self._saved.append((owner, name, old))
        setattr(owner, name, value)
        return None if old is _ABSENT else old

    def later(self, undo: Callable[[], Any]) -> None:
        """Call this when everything is put back."""
        self._later.append(undo)

    def restore(self) -> None:
        """Put everything back as it was before the first `set`."""
        while self._saved:
            owner, name, old = self._saved.pop()
            if old is _ABSENT:
                delattr(owner, name)
            else:
                setattr(owner, name, old)
        while self._later:
            self._later.pop()()

    def __bool__(self) -> bool:
        return bool(self._saved or self._later)
