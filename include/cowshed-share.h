/* SPDX-License-Identifier: MIT */
/*
 * cowshed: storages in several processes
 *
 * Library: libcowshed (pkg-config cowshed).
 *
 * A program sends a storage through a Unix socket that it has. The receiver
 * gets a storage on the same pages. Only the message is copied.
 *
 *      struct cow_channel *c;
 *      struct cow_parcel p = cow_parcel_of(s, COW_SHARE_CLONE);
 *
 *      cow_channel_new(socket, NULL, 0, &c);
 *      cow_channel_send(c, &p, 1, NULL, 0);              this process may exit
 *
 *      cow_channel_receive(c, &p, 1, NULL, 0, NULL);     in the other one
 *      cow_storage_data(p.storage);
 *
 * Modes. There are three. Both sides write an *alias*, and each sees the
 * other's bytes. A *clone* belongs to each side alone: pages are copied when
 * either side writes them. The bytes of a *sealed* storage never change again;
 * the receiver may trust that. A receiver that writes it all the same gets pages
 * of its own: no other handle on these bytes sees that.
 *
 * Groups. Without a group, each storage that is sent gets a memfd of its own.
 * The memfd exposes the storage's bytes and nothing else. That is right for
 * peers that do not trust each other, and costs one descriptor for each
 * storage. Members of a *group* trust each other as forked workers do. Their
 * storages lie together, by the thousand, in a few memfds that every member can
 * map and write. The last holder of a clone writes it in place.
 * docs/security.md says what each mode exposes.
 *
 * Death. Only the kernel knows which process holds what. A process that is
 * killed at any moment holds nothing any more. What it had sent still arrives.
 *
 * Moving. The first time that a storage is shared its bytes move into the
 * group's memory or into a memfd. cow_group_storage_new() makes a storage that
 * is there from the start, and so does COW_STORAGE_SHAREABLE, in a memfd of its
 * own. `shared` of cow_storage_info tells whether a send would copy. A
 * transparent storage cannot move. A clone of one is sent as it lies if it is
 * large, and was not sent before or not written since.
 * It is also sent as it lies if it was received and not written. Else a copy is
 * sent. Large means 64 MiB or more, allocated after the process had its first
 * channel or group, for eight storages at a time. The option `share`
 * (docs/options.md) makes more storages so.
 *
 * Devices. A storage of a CUDA device (cowshed-cuda.h) travels in the same
 * messages, as an alias or as a clone. The receiver must have started the same
 * device. Memory of a device has no seals: a process that has a piece of it can
 * write the piece. So there are no sealed storages of a device. Outside of a
 * group the sender copies a clone, on the device. The receiver copies it again
 * unless its channel takes aliases. In a group a clone shares its pieces until
 * they are written. The writer copies the pieces that it writes, even if all
 * other holders are gone: nobody counts the holders.
 *
 * The receiver's current stream waits, on the device, for the work that is
 * under way on the sender's current stream. Where there are no events between
 * processes the sender's call waits instead. The sender may free the storage at
 * once, and may exit when its streams are done. The broker keeps no storages of
 * devices.
 *
 * Errors, ownership and threads are as in cowshed.h. fork: the child is a
 * member of its parent's groups. Aliases stay aliases; all other storages are
 * the child's own. Channels stay the parent's: the child gets -EPERM.
 */
#ifndef COWSHED_SHARE_H
#define COWSHED_SHARE_H

#include "cowshed.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The modes of sharing: see the head of cowshed-share.h. */
enum cow_share_mode {
	COW_SHARE_ALIAS = 0,
	COW_SHARE_CLONE = 1,
	COW_SHARE_SEALED = 2,
};

/* ---- Groups: cow_group(3) ----------------------------------------------- */

struct cow_group;

/*
 * Makes a group. So far this process is its only member. *ret is a reference.
 *
 *   -ENOENT, -EACCES   /proc/self/fd is missing
 *   -EOPNOTSUPP        the kernel has no locks of open files, as gVisor
 *   -EMFILE, -ENOMEM
 */
int cow_group_new(struct cow_group **ret);

/*
 * Gives a descriptor by which another process can become a member
 * (cow_group_join()). The caller owns it and closes it; it has FD_CLOEXEC. A
 * process that has the descriptor is trusted: a member can read and write all
 * that the group shares. A channel with a group sends the descriptor in its
 * messages.
 *
 *   -EMFILE
 *   -EBADF    the program closed the library's descriptor
 */
int cow_group_fd(struct cow_group *group, int *ret);

/*
 * Makes this process a member of the group of `fd`, which stays the caller's.
 * *ret is a reference; joining the same group again gives the same handle.
 *
 *   -EBADMSG           not a group's descriptor
 *   -EAGAIN            the group has 256 members and messages already
 *   -ENOENT, -EACCES   /proc/self/fd is missing
 *   -EMFILE, -ENOMEM
 */
int cow_group_join(int fd, struct cow_group **ret);

/* Takes and gives back a reference; atomic. A process stays a member while it
 * has one, or a storage in the group's memory. Both take NULL. unref returns
 * NULL. */
struct cow_group *cow_group_ref(struct cow_group *group);
struct cow_group *cow_group_unref(struct cow_group *group);

/*
 * Makes a storage of `bytes` zeros in the group's memory. It is sent without
 * being copied first: as a clone if `mode` is CLONE, as an alias if `mode` is
 * ALIAS. The storage is tracked.
 *
 *   -EINVAL   SEALED; more than INT64_MAX bytes
 *   -ENOMEM, -EMFILE
 */
int cow_group_storage_new(struct cow_group *group, size_t bytes,
                          enum cow_share_mode mode, struct cow_storage **ret);

/* ---- Channels: cow_channel(3) ------------------------------------------- */

struct cow_channel;

enum cow_channel_flags {
	/* Becomes a member of the group that the peer offers. A channel without
	 * this flag and without a group refuses messages of a group. */
	COW_CHANNEL_JOIN = 1 << 0,
	/* Takes aliases from peers that are in no group. Their bytes may change
	 * while they are read. */
	COW_CHANNEL_TAKE_ALIASES = 1 << 1,
	/* -EPERM unless the peer's process is of the same user, as of the
	 * connection (SO_PEERCRED in unix(7)). */
	COW_CHANNEL_SAME_USER = 1 << 2,
	/* Parcels that do not fit into one message go in several parts. With
	 * this flag each part has the first COW_LABEL_BYTES bytes of the note.
	 * Where several processes receive from one socket, each can tell by
	 * them which parts belong together. */
	COW_CHANNEL_LABELS = 1 << 3,
};

/*
 * Makes a channel on a connected Unix socket, SOCK_STREAM or SOCK_SEQPACKET,
 * blocking or not. The socket stays the caller's. Nothing else may use it while
 * the channel lives. `group`: NULL, or the group for whose memory storages are
 * packed; the channel keeps a reference. `flags`: enum cow_channel_flags. The
 * caller ends the channel with cow_channel_free().
 *
 * Threads: any thread may use the channel, one call at a time. Other calls wait
 * until that call is done, also while it waits for the socket.
 *
 *   -EPROTOTYPE         another kind of socket
 *   -EBADF, -ENOTSOCK   no socket
 *   -EINVAL             unknown flags
 *   -EPERM              SAME_USER, and the peer is another user's
 *   -ENOMEM
 */
int cow_channel_new(int socket, struct cow_group *group, uint32_t flags,
                    struct cow_channel **ret);

/* Ends a channel; takes NULL and returns NULL. Messages that wait in the
 * channel are not sent any more. The socket stays open. A forked child may free
 * a channel that it inherited. */
struct cow_channel *cow_channel_free(struct cow_channel *channel);

/* The channel's group: the one that it was given, or joined. A new reference,
 * or NULL. */
struct cow_group *cow_channel_group(struct cow_channel *channel);

/* A view of a storage, on its way. The whole storage is sent: the view is no
 * border. */
struct cow_parcel {
	struct cow_storage *storage;
	uint64_t offset, length; /* bytes of the view; within the storage */
	uint32_t mode;           /* enum cow_share_mode */
	uint32_t strategy;       /* enum cow_strategy (cowshed-broker.h); 0 */
};

/* A parcel of the whole storage, which stays the caller's: its offset is 0 and its length
 * is cow_storage_bytes(). A parcel with length 0 sends a view of no bytes. Takes no
 * reference. NULL gives a parcel that cow_channel_send() refuses. */
struct cow_parcel cow_parcel_of(struct cow_storage *storage, enum cow_share_mode mode);

/* Bytes of a note, at most. */
#define COW_NOTE_MAX 16384

/* Bytes of a note that go with each part: see COW_CHANNEL_LABELS. */
#define COW_LABEL_BYTES 16

/*
 * Sends `count` parcels. `note` is `note_bytes` bytes for the program on the
 * other side. It goes with the last parcel, or alone if there are 0 parcels.
 *
 * Returns how many parcels were taken. A socket that does not block takes fewer
 * than `count` when it is full; then the note was not taken either. What was
 * taken is on its way, or waits in the channel for the next call or
 * cow_channel_flush(). No SIGPIPE is sent.
 *
 * The storages stay the caller's. CLONE counts as a clone of each storage:
 * pointers for writing end. Any mode may move a storage, unless it is
 * transparent.
 *
 *   -EAGAIN       nothing was taken: the socket is full (poll(2) for POLLOUT)
 *   -EUSERS       an alias in a group that has 256 members and messages: its
 *                 readers are slow. Clones are copied then, and go on
 *   -EMSGSIZE     a packet of the socket cannot hold one parcel and the
 *                 note (SO_SNDBUF in socket(7))
 *   -EPIPE        the peer is gone
 *   -EINVAL       no storage; a view outside of it; no such mode or
 *                 strategy; a note over COW_NOTE_MAX; nothing to send
 *   -EBUSY        an alias of a transparent storage (see
 *                 cow_storage_share_in_place()); a device's storage, and
 *                 the current stream records a graph; children of forks
 *                 that run no handlers keep the file from being sealed
 *   -EXDEV        an alias that lies in another group's memory
 *   -EOPNOTSUPP   element hooks; an alias of memory of another device or
 *                 allocator; a device's storage sealed or by the broker
 *   -EPERM        the channel is the parent's, after fork
 *   -EBADF        the program closed the socket, or a descriptor of the
 *                 library
 *   -ENOMEM, -ENOBUFS, -EMFILE, -ETOOMANYREFS   try again
 *   other         for a parcel by a broker: as cow_broker_put()
 */
long cow_channel_send(struct cow_channel *channel,
                      const struct cow_parcel *parcels, size_t count,
                      const void *note, size_t note_bytes);

/* Sends what waits in the channel. 0: nothing waits any more. -EAGAIN:
 * something does. Other errors as for cow_channel_send(). */
int cow_channel_flush(struct cow_channel *channel);

/*
 * Receives up to `max` parcels of one message. Their storages are new
 * references, which the caller gives back. Returns how many; 0 for a message of
 * a note alone. An alias that is received again, or that comes back to the
 * process that made it, is the same storage. A clone or a sealed storage that is
 * received again is another storage on the same bytes; the views of one sealed
 * storage that one message brings are views of one.
 *
 * The note goes to `note` with the last parcel of its message, cut to
 * `note_max` bytes. `ret_note_bytes`, if not NULL, gets the note's full length.
 * It gets 0 before the last parcel, but for labels.
 *
 * The message is dropped as a whole after these errors, and the next one can be
 * received:
 *
 *   -EBADMSG   the message was not sound. If the stream itself is in
 *              disorder, each later call gives this
 *   -EACCES    an alias, or a group, that this channel does not take; a
 *              token, and no cow_strategy_set() named a broker
 *   -ESTALE    a storage of the message is gone, or the program closed
 *              its descriptors while the message waited
 *   -ENODEV    a storage of a device that this process has not started
 *   -ENOENT    no /proc/self/fd to join a group with
 *   -ECHILD    a storage of a device that the parent had started
 *   other      of a token: as cow_broker_get()
 *
 * Nothing was lost after these; try again. (But what a broker gave once alone
 * is gone.)
 *
 *   -EMFILE, -ENOMEM
 *   -EUSERS    the peer's group has 256 members and messages already
 *   -EBUSY     a storage of a device whose current stream records a graph
 *
 * And:
 *
 *   -EAGAIN    nothing is there
 *   -EPIPE     the peer is gone, and all was received
 *   -EBADF     the program closed the socket
 *   -EPERM     the channel is the parent's, after fork
 */
long cow_channel_receive(struct cow_channel *channel, struct cow_parcel *parcels,
                         size_t max, void *note, size_t note_max,
                         size_t *ret_note_bytes);

/* What cow_channel_pending() tells. */
enum cow_channel_pending {
	/* cow_channel_receive() has something to give, or to try again, that is
	 * no longer in the socket: parcels that the last call had no room for,
	 * or a message that waits for a shortage to pass. */
	COW_PENDING_RECEIVE = 1 << 0,
	/* The socket was full: a part of what cow_channel_send() took waits. */
	COW_PENDING_SEND = 1 << 1,
};

/*
 * What waits inside the channel, where poll(2) of its socket can't see it: 0 or
 * more of enum cow_channel_pending. A loop over events asks this before it
 * waits:
 *
 *      RECEIVE   call cow_channel_receive(), without waiting for POLLIN
 *      SEND      poll for POLLOUT, too, and call cow_channel_flush() then
 *      always    poll for POLLIN
 *
 * `ret_parcels`, if not NULL, gets the number of parcels that are ready. After
 * POLLIN a stream may have brought a part of a message: cow_channel_receive() is
 * -EAGAIN then, and POLLIN tells of the rest. Waits for another thread's call on
 * the channel, as all calls do. Makes no system call.
 *
 *   -EINVAL   NULL
 *   -EPERM    the channel is the parent's, after fork
 */
int cow_channel_pending(struct cow_channel *channel, size_t *ret_parcels);

/*
 * Makes a transparent storage an alias at its address: other processes will
 * write what this program has there. The pages stay there, or get a file of
 * their own at the same address, which costs one copy. From then on sending or
 * exporting the storage as ALIAS costs none. Doing it again changes nothing and
 * returns 0.
 *
 * Nobody may be writing the storage during the call. A forked child has it in
 * common with its parent. Clones of it are copies, and so are messages with it
 * in other modes. The alias ends with the storage or block. Resizing a block
 * moves its bytes out of the alias. Parts that are given back (MADV_DONTNEED in
 * madvise(2)) read as zero for all. A receiver sees the rest of the last page,
 * too.
 *
 *   -EBUSY        a clone or a forked relative still reads its pages;
 *                 memory may be under I/O
 *   -EOPNOTSUPP   memory that is not the engine's; a tracked storage
 *                 (sending it as ALIAS moves it); memory whose protection
 *                 the program changed
 *   -EMFILE       each costs a descriptor, and there are as many as may be: a
 *                 quarter of RLIMIT_NOFILE, 8 at least, 1024 at most
 *   -EINVAL       no storage, or 0 bytes
 *   -ENOMEM
 */
int cow_storage_share_in_place(struct cow_storage *storage);

/* ---- For programs with a protocol of their own: cow_storage_export(3) --- */

/*
 * Gives a storage as a descriptor, which the caller owns: to send, and to
 * close. Bytes [ret_offset, ret_offset + cow_storage_bytes()) of it are the
 * storage's, and it has no others. ALIAS moves the storage there, as sending
 * does. CLONE and SEALED give a sealed memfd.
 *
 * A device's storage must have one piece. ALIAS gives that piece; CLONE gives
 * another one with a copy. The offset is 0, and the call waits for the current
 * stream.
 *
 *   -EINVAL   no such mode; 0 bytes
 *   other     as for cow_channel_send()
 */
int cow_storage_export(struct cow_storage *storage, enum cow_share_mode mode,
                       int *ret_fd, uint64_t *ret_offset);

/*
 * Makes a storage of `bytes` bytes of a descriptor, from `offset` on. *ret is a
 * reference; of an alias that this process has already, to that storage. `fd`
 * stays the caller's. Of an alias `fd` must be a memfd that is
 * sealed against growing and shrinking; else it must be sealed against writing,
 * too. It may also be the memory of a device that was exported, if the device
 * is started here.
 *
 *   -EBADMSG   no such descriptor
 *   -EINVAL    the bytes are not in it; no such mode
 *   -EBUSY     a storage here has these bytes already, with another size
 *              or mode; of a device, the current stream records a graph
 *   -ECHILD    memory of a device that the parent had started
 *   -EMFILE, -ENOMEM
 */
int cow_storage_import(int fd, uint64_t offset, size_t bytes,
                       enum cow_share_mode mode, struct cow_storage **ret);

#ifdef __cplusplus
}
#endif

#endif
