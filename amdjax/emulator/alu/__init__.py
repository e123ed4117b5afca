"""What instructions compute, one table for each kind: VALU, SALU, lanes, matrices."""
