"""Widgets that show which thread owns what; each is a Python trait class beside small .js and .css files."""

from cutetut.widgets.thread_map import MapError, ThreadMap
from cutetut.widgets.thread_picker import ThreadPicker

__all__ = ["MapError", "ThreadMap", "ThreadPicker"]
