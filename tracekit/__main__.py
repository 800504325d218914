"""`python -m tracekit`, for an interpreter whose scripts are not on PATH."""

from tracekit.cli import main

if __name__ == "__main__":
    main()
