"""From programs to tile programs: what shares a kernel, and its loops, lanes and tiles."""
