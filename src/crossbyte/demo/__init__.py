"""See crossbyte at work on real pictures: ``crossbyte demo``, ``python -m crossbyte.demo``, ``make demo``."""
