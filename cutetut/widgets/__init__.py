"""Widgets for the book's pages; each is a Python trait class beside small .js and .css files."""

from cutetut.widgets.thread_map import MapError, ThreadMap
from cutetut.widgets.thread_picker import ThreadPicker
from cutetut.widgets.timeline import Span, Timeline, TimelineError

__all__ = ["MapError", "Span", "ThreadMap", "ThreadPicker", "Timeline", "TimelineError"]
