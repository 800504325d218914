"""One trace file to columns, by a native or a portable decoder, which give the same."""
