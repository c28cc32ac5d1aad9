"""What an index will cost, before it is built."""
