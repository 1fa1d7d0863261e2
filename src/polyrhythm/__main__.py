"""The command line as `python -m polyrhythm`, where the program `polyrhythm` is not on the path."""

from polyrhythm.cli import main

if __name__ == "__main__":
    main()
