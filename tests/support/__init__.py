"""What tests share: runners, oracles, reference implementations, made-up devices and objects."""
