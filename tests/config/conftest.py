"""The command line, for all tests of this folder."""

from terminal import polyrhythm as polyrhythm
