# SPDX-License-Identifier: MIT
"""Pools, with the types of multiprocessing.pool."""

from multiprocessing.pool import AsyncResult as AsyncResult
from multiprocessing.pool import IMapIterator as IMapIterator
from multiprocessing.pool import IMapUnorderedIterator as IMapUnorderedIterator
from multiprocessing.pool import MapResult as MapResult
from multiprocessing.pool import Pool as Pool
from multiprocessing.pool import ThreadPool as ThreadPool

class MaybeEncodingError(Exception):
    exc: str
    value: str
