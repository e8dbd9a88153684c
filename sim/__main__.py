"""Makes ``python -m sim`` the ``infersim`` command."""

from sim.cli import main

if __name__ == "__main__":
    main()
