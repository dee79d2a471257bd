"""Widgets for the book's pages; each is a Python trait class beside small .js and .css files."""

from cutetut.widgets.descriptor_decoder import DescriptorDecoder
from cutetut.widgets.layout_viewer import LayoutViewer
from cutetut.widgets.swizzle_view import SwizzleView
from cutetut.widgets.thread_map import MapError, ThreadMap
from cutetut.widgets.thread_picker import ThreadPicker
from cutetut.widgets.timeline import Span, Timeline, TimelineError

__all__ = [
    "DescriptorDecoder",
    "LayoutViewer",
    "MapError",
    "Span",
    "SwizzleView",
    "ThreadMap",
    "ThreadPicker",
    "Timeline",
    "TimelineError",
]
