"""The rules: pure functions of a picture. docs/rules.md says what they judge, and with which numbers."""

from .conclusion import Conclusion
from .registry import judge
from .straggler import judge as stragglers

__all__ = ["Conclusion", "judge", "stragglers"]
