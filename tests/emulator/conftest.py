import sys
from pathlib import Path

# Helpers stand beside the tests that use them.
sys.path.insert(0, str(Path(__file__).parent))
