"""Reports: one page, or the tables of a paper, from the records of some runs.

import polyrhythm as pr
from polyrhythm import report

report.write(pr.compare("runs"), "report.html")
"""

from polyrhythm.report.contents import Contents, contents
from polyrhythm.report.writing import FORMATS, write

__all__ = ["FORMATS", "Contents", "contents", "write"]
