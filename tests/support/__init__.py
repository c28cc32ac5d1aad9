"""What tests share: oracles, twins, samples, and programs for other processes."""
