"""Small plans and records, for all tests of this folder."""

from records import make_plan as make_plan
from records import make_version as make_version
from records import make_visit as make_visit
