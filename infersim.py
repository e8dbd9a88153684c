"""The names of ``sim``, under the name by which the package is installed.

>>> import infersim
>>> infersim.load_scenario("scenarios/chat.yaml").name
'chat'
"""

import sim
from sim import *  # noqa: F403
from sim.cli import main

__all__ = sim.__all__

if __name__ == "__main__":
    main()
