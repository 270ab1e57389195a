import sys,traceback,rand
from tests.property.swap_world import FEATURES
from tests.property.test_swaps import play
try: play(*rand.story(int(sys.argv[1]),sys.argv[2],False,tuple(FEATURES),False))
except Exception: traceback.print_exc(limit=-6)
