"""Replace attributes of other modules, and put them back."""

from __future__ import annotations

from typing import Any

_ABSENT = object()


class Patches:
    """A list of replaced attributes, restored in reverse order."""

    def __init__(self) -> None:
        self._saved: list[tuple[Any, str, Any]] = []

    def set(self, owner: Any, name: str, value: Any) -> Any:
        """Replace owner.name; returns what was there (None when nothing was)."""
        old = vars(owner).get(name, _ABSENT)
        self._saved.append((owner, name, old))
        setattr(owner, name, value)
        return None if old is _ABSENT else old

    def restore(self) -> None:
        """Put everything back as it was before the first `set`."""
        while self._saved:
            owner, name, old = self._saved.pop()
            if old is _ABSENT:
                delattr(owner, name)
            else:
                setattr(owner, name, old)

    def __bool__(self) -> bool:
        return bool(self._saved)
