/* SPDX-License-Identifier: MIT */
/*
 * cowshed: storages in several processes
 *
 * A storage is sent through a Unix socket that the program has. What arrives is
 * a storage again, on the same pages: nothing is copied but the message.
 *
 *      struct cow_channel *c;
 *      struct cow_parcel p = { .storage = s, .mode = COW_SHARE_CLONE };
 *
 *      cow_channel_new(socket, NULL, 0, &c);
 *      p.length = cow_storage_bytes(s);
 *      cow_channel_send(c, &p, 1, NULL, 0);              this process may exit
 *
 *      cow_channel_receive(c, &p, 1, NULL, 0, NULL);     in the other one
 *      cow_storage_data(p.storage);
 *
 * Three modes. An *alias* is written by both sides, who see each other's bytes. A
 * *clone* belongs to each side alone: pages are copied when either writes them. A
 * *sealed* storage never changes again; who receives it may trust that.
 *
 * Groups. Without a group each storage that is sent gets a memfd of its own, which
 * exposes its bytes and nothing else. That is right for peers who don't trust each
 * other, and costs a descriptor each. Members of a *group* trust each other as
 * forked workers do: their storages lie together in a few memfds, which every
 * member can map and write, by the thousand, and the last holder of a clone
 * writes it in place. docs/security.md says what each mode exposes.
 *
 * Death. Who holds what is known to the kernel alone: a process that is killed at
 * any moment holds nothing any more, and what it had sent still arrives.
 *
 * Devices. A storage of a CUDA device (cowshed-cuda.h) travels in the same messages, to
 * processes that have started the same device: as an alias, or as a clone. Memory of a
 * device has no seals: whoever has a piece of it can write it. So there are no sealed
 * ones, and outside of a group a clone is copied, on the device, by the sender, and by the
 * receiver unless it takes aliases, too. In a group a clone shares its pieces for as
 * long as nobody writes them: the writer copies what it writes, also if all others are
 * gone meanwhile, which nobody counts. What is under way on the sender's current stream
 * is waited for by the receiver's, on the device (by the sender's call, where there are no
 * events between processes). A sender may free at once, and may exit when its streams
 * are done. The broker keeps none.
 *
 * The first time a storage is shared its bytes move: into the group's memory or a
 * memfd. cow_group_storage_new() makes one that is there from the start. A storage
 * whose address was given away (transparent) cannot move. A clone of it is sent as it
 * lies if it is large and was not sent before, or not written since (the option
 * `share` of docs/options.md makes more of them so), or if it was received and not
 * written; else as a copy.
 *
 * Errors, ownership and threads are as in cowshed.h. fork: the child is a member
 * of its parent's groups; aliases stay aliases, all else is the child's own.
 * Channels stay the parent's: the child gets -EPERM.
 */
#ifndef COWSHED_SHARE_H
#define COWSHED_SHARE_H

#include "cowshed.h"

#ifdef __cplusplus
extern "C" {
#endif

enum cow_share_mode {
	COW_SHARE_ALIAS = 0,
	COW_SHARE_CLONE = 1,
	COW_SHARE_SEALED = 2,
};

/* ---- Groups: cow_group(3) ----------------------------------------------- */

struct cow_group;

/* A group of this process alone, so far. Needs /proc/self/fd: -ENOENT. */
int cow_group_new(struct cow_group **ret);

/*
 * A descriptor by which another process can become a member; the caller closes
 * it. To have it is to be trusted: a member can read and write all that the group
 * shares. A channel with a group sends it along.
 */
int cow_group_fd(struct cow_group *group, int *ret);

/* Becomes a member. `fd` stays the caller's. The same group again is the same
 * handle. -EBADMSG: not a group's; -EAGAIN: 256 members and messages already. */
int cow_group_join(int fd, struct cow_group **ret);

/* References, atomic. A process stays a member while it has one, or a storage
 * that is the group's. unref takes NULL and returns NULL. */
struct cow_group *cow_group_ref(struct cow_group *group);
struct cow_group *cow_group_unref(struct cow_group *group);

/* A tracked storage in the group's memory: zeros, for sending as a clone or
 * (ALIAS) as an alias, without being copied first. SEALED is -EINVAL. */
int cow_group_storage_new(struct cow_group *group, size_t bytes,
                          enum cow_share_mode mode, struct cow_storage **ret);

/* ---- Channels: cow_channel(3) ------------------------------------------- */

struct cow_channel;

enum cow_channel_flags {
	/* Becomes a member of the group that the peer offers. Without it, and
	 * without a group, such messages are refused. */
	COW_CHANNEL_JOIN = 1 << 0,
	/* Takes aliases from peers that are in no group: their bytes may change
	 * while they are read. */
	COW_CHANNEL_TAKE_ALIASES = 1 << 1,
	/* -EPERM unless the peer is of the same user. */
	COW_CHANNEL_SAME_USER = 1 << 2,
	/* What is sent in several parts, since one can't hold it, has the first
	 * COW_LABEL_BYTES of its note with each of them: where several receive from one
	 * socket, each can tell which parts belong together. */
	COW_CHANNEL_LABELS = 1 << 3,
};

/*
 * Speaks over a connected Unix socket, SOCK_STREAM or SOCK_SEQPACKET, blocking or
 * not, which stays the caller's and is used for nothing else meanwhile. `group`:
 * NULL, or what storages are packed for; a reference is kept. -EPROTOTYPE: another
 * kind of socket; -EINVAL: unknown flags.
 */
int cow_channel_new(int socket, struct cow_group *group, uint32_t flags,
                    struct cow_channel **ret);

/* Takes NULL and returns NULL. What was not sent yet is not sent any more. */
struct cow_channel *cow_channel_free(struct cow_channel *channel);

/* The group: the one given, or joined. A new reference, or NULL. */
struct cow_group *cow_channel_group(struct cow_channel *channel);

/* A view of a storage, on its way. */
struct cow_parcel {
	struct cow_storage *storage;
	uint64_t offset, length; /* of the view; within the storage */
	uint32_t mode;           /* enum cow_share_mode */
	uint32_t strategy;       /* enum cow_strategy (cowshed-broker.h); 0 */
};

/* Bytes of a note, at most. */
#define COW_NOTE_MAX 16384

/* Bytes of its beginning that go with each part: see COW_CHANNEL_LABELS. */
#define COW_LABEL_BYTES 16

/*
 * Sends `count` parcels, and with the last of them `note_bytes` for the program on
 * the other side. How many were taken: on a socket that does not block fewer than
 * `count` when it is full (then the note was not taken either). What was taken is
 * on its way, or waits in the channel for the next call or cow_channel_flush().
 * The storages stay the caller's; CLONE counts as a clone of each (pointers for
 * writing end), and any mode may move it, unless it is transparent.
 *
 * -EAGAIN: nothing was taken; -EMSGSIZE: a packet's socket has too small a buffer
 * for one parcel and the note; -EPIPE: the peer is gone; -EINVAL: no storage, a
 * view outside of it, no such mode; -EBUSY: an alias of a transparent storage (see
 * cow_storage_share_in_place()); -EXDEV:
 * an alias that lies in another group's memory;
 * -EOPNOTSUPP: element hooks, memory of another device or allocator as alias, a
 * device's sealed or by the broker; -EBUSY also: a graph is being recorded;
 * -EPERM: after fork; -EBADF: the program closed the socket, or a descriptor of
 * the library's; as cow_broker_put() for a parcel that goes that way; -ENOMEM,
 * -EMFILE, -ETOOMANYREFS (try again).
 */
long cow_channel_send(struct cow_channel *channel,
                      const struct cow_parcel *parcels, size_t count,
                      const void *note, size_t note_bytes);

/* 0: nothing waits any more; -EAGAIN: something does; else as above. */
int cow_channel_flush(struct cow_channel *channel);

/*
 * Receives up to `max` parcels of one message; their storages are new references.
 * How many; 0 for a message of a note alone. The note goes to `note` with the
 * last parcel of its message, cut to `note_max`; its length to `ret_note_bytes`
 * (0 before, but for labels; NULL: not wanted). The same alias or sealed storage received again is
 * the same storage.
 *
 * -EAGAIN: nothing is there; -EPIPE: the peer is gone, and all was received.
 * -EBADMSG: what came was not sound; -EACCES: an alias, or a group, that this
 * channel does not take; -ESTALE: what it meant is gone, or the program closed
 * its descriptors while it waited to be received. Such a message is dropped as a
 * whole, and the next one can be received, unless the stream is in disorder:
 * then each call says -EBADMSG. -EMFILE, -ENOMEM, -EUSERS (the peer's group has 256
 * members and messages already), -EBUSY (a storage of a device whose current stream
 * records a graph): nothing was lost; try again (but what a broker gave once
 * alone is gone). -EBADF: the program
 * closed the socket; -ENOENT: no /proc/self/fd to join a group with; -ENODEV, -ECHILD: a
 * storage of a device that this process has not started, or must not use after fork.
 */
long cow_channel_receive(struct cow_channel *channel, struct cow_parcel *parcels,
                         size_t max, void *note, size_t note_max,
                         size_t *ret_note_bytes);

/*
 * An alias of a storage whose address was given away (transparent): other processes
 * shall write what this program has at that address. Its pages stay there, or get a
 * file of their own there, which costs one copy; from then on sending or exporting
 * it as ALIAS costs none. Nobody may be writing it during the call. A forked child has
 * it in common with its parent; clones of it, and messages with it in other modes, are
 * copies. It ends with the storage, or block; resizing a block moves its bytes out of
 * it; what is given back of it (MADV_DONTNEED) reads as zero for all. Whoever gets it
 * sees the rest of its last page, too. Once more: 0, nothing to do.
 *
 * -EBUSY: a clone, or a forked relative, still reads its pages, or memory may be under
 * I/O; -EOPNOTSUPP: memory that is not the engine's, tracked (sending it as ALIAS moves
 * it), or whose protection the program changed; -EMFILE: it costs a descriptor, and there
 * are many (a quarter of the limit, 1024 at most); -EINVAL: NULL or no bytes; -ENOMEM.
 */
int cow_storage_share_in_place(struct cow_storage *storage);

/* ---- For programs with a protocol of their own: cow_storage_export(3) --- */

/*
 * A storage as a descriptor: the caller's, to send and to close. Bytes [ret_offset,
 * ret_offset + cow_storage_bytes()) of it are the storage's, and it has no others.
 * ALIAS moves the storage there, as sending does; CLONE and SEALED give a sealed
 * memfd. A device's storage of one piece gives that piece (ALIAS) or one with a copy, of
 * offset 0, and the call waits for the current stream. Errors as for
 * cow_channel_send().
 */
int cow_storage_export(struct cow_storage *storage, enum cow_share_mode mode,
                       int *ret_fd, uint64_t *ret_offset);

/*
 * The other way round. `fd` stays the caller's. It must be a memfd (of an alias:
 * sealed against growing and shrinking; else also against writing) that has these
 * bytes; or what was exported of a device that is started here. -EBADMSG: it is none; -EINVAL: they are not in it.
 */
int cow_storage_import(int fd, uint64_t offset, size_t bytes,
                       enum cow_share_mode mode, struct cow_storage **ret);

#ifdef __cplusplus
}
#endif

#endif
