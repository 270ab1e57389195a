"""The memory engine: ``engine`` over ``tables``. It says what the contract means, and it serves tests."""
