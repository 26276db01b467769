# SPDX-License-Identifier: MIT
"""Queues, with the types of multiprocessing.queues."""

from multiprocessing.queues import JoinableQueue as JoinableQueue
from multiprocessing.queues import Queue as Queue
from multiprocessing.queues import SimpleQueue as SimpleQueue
from queue import Empty as Empty
from queue import Full as Full
