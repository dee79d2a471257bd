"""The tensor map's decoder, where the notebooks recorded before the rooms look for it."""

from .units.tensormap import *  # noqa: F403
