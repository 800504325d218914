"""The parts of `load`: ranks are read, it is settled which of their steps count, and they become one run."""
