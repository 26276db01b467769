# SPDX-License-Identifier: MIT
#
# install.mk: the manual, installation, Debian packages.

prefix ?= /usr/local
bindir ?= $(prefix)/bin
libdir ?= $(prefix)/lib
includedir ?= $(prefix)/include
mandir ?= $(prefix)/share/man
unitdir ?= $(prefix)/lib/systemd/user
VERSION = $(shell awk '/^.define COW_VERSION_/{printf "%s%s", s, $$3; s = "."}' include/cowshed.h)
RELEASED = $(shell sed -nE '/^## /{s/.*\((.*)\)/\1/p;q}' CHANGELOG.md)
HEADERS := $(sort $(wildcard include/*.h))
UNITS := $(sort $(wildcard cli/systemd/cowshed-broker.*))
MAN1 := $(sort $(wildcard docs/man/*.1))
MAN7 := $(sort $(wildcard docs/man/*.7))

# Section 3 is made of the public headers. The list says which function is on which page.
MAN3 := build/man/links
$(MAN3): $(HEADERS) docs/man/section3.awk CHANGELOG.md
	@rm -rf $(@D) && mkdir -p $(@D)
	$(Q)awk -v out=$(@D) -v version=$(VERSION) -v date=$(RELEASED) -f docs/man/section3.awk $(HEADERS)

# pkg-config's files. A program needs one: it names the others that it requires.
pc_file = printf '%s\n' 'prefix=$(prefix)' 'libdir=$(libdir)' 'includedir=$(includedir)' '' \
	'Name: $(1)' 'Version: $(VERSION)' 'Description: $(2)' $(if $(3),'Requires: $(3)') \
	'Libs: -L$${libdir} -l$(1)' 'Cflags: -I$${includedir}' \
	>$(DESTDIR)$(libdir)/pkgconfig/$(1).pc && chmod 644 $(DESTDIR)$(libdir)/pkgconfig/$(1).pc

# The archive stays here: a process has one engine.
install-files: all man
	$(Q)install -d $(DESTDIR)$(bindir) $(DESTDIR)$(includedir) \
		$(DESTDIR)$(libdir)/pkgconfig $(DESTDIR)$(unitdir)
	$(Q)install -m 644 $(HEADERS) $(DESTDIR)$(includedir)
	$(Q)for so in $(LIBS_LINK); do name=$${so##*/}; \
		install -m 755 $$so.0 $(DESTDIR)$(libdir)/$$name.$(VERSION) && \
		ln -sf $$name.$(VERSION) $(DESTDIR)$(libdir)/$$name.0 && \
		ln -sf $$name.0 $(DESTDIR)$(libdir)/$$name || exit; done
	$(Q)install -m 755 $(PRELOAD_SO) $(COPIES_SO) $(DESTDIR)$(libdir)
	$(Q)install -m 755 $(CLI) $(DESTDIR)$(bindir)
	$(Q)for unit in $(UNITS); do sed 's|@bindir@|$(bindir)|' $$unit \
		>$(DESTDIR)$(unitdir)/$${unit##*/} || exit; done
	$(Q)chmod 644 $(addprefix $(DESTDIR)$(unitdir)/,$(notdir $(UNITS)))
	$(Q)install -Dm 644 -t $(DESTDIR)$(mandir)/man1 $(MAN1)
	$(Q)install -Dm 644 -t $(DESTDIR)$(mandir)/man3 build/man/*.3
	$(Q)install -Dm 644 -t $(DESTDIR)$(mandir)/man7 $(MAN7)
	$(Q)while read -r name page; do ln -sf $$page.3 $(DESTDIR)$(mandir)/man3/$$name.3 || \
		exit; done <$(MAN3)
	$(Q)$(call pc_file,cowshed,Copy-on-write$(comma) shareable memory for Linux)
	$(Q)$(call pc_file,cowshed-tensor,Tensors on cowshed storages,cowshed)
	$(Q)$(call pc_file,cowshed-cuda,CUDA device memory for cowshed,cowshed-tensor)
comma := ,

# Folders stay, also empty ones: others may use them, too.
uninstall-files: man
	$(Q)rm -f $(addprefix $(DESTDIR)$(includedir)/,$(notdir $(HEADERS))) \
		$(addprefix $(DESTDIR)$(libdir)/,$(foreach so,$(notdir $(LIBS_LINK)),\
			$(so) $(so).0 $(so).$(VERSION)) $(notdir $(PRELOAD_SO) $(COPIES_SO))) \
		$(DESTDIR)$(bindir)/cowshed \
		$(addprefix $(DESTDIR)$(libdir)/pkgconfig/cowshed,.pc -tensor.pc -cuda.pc) \
		$(addprefix $(DESTDIR)$(unitdir)/,$(notdir $(UNITS))) \
		$(addprefix $(DESTDIR)$(mandir)/man1/,$(notdir $(MAN1))) \
		$(addprefix $(DESTDIR)$(mandir)/man7/,$(notdir $(MAN7)))
	$(Q)(cd build/man && ls *.3; sed 's/ .*/.3/' links) | \
		(cd $(DESTDIR)$(mandir)/man3 2>/dev/null && xargs rm -f)

# The same objects, linked again without run paths: the system's own folders need none.
deb-files: all
	$(Q)rm -rf build/deb/tree
	$(Q)triplet=$$(dpkg-architecture -qDEB_HOST_MULTIARCH) && $(MAKE) -s B=build/deb/linked \
		O=$(O) RUNPATH= DESTDIR=build/deb/tree prefix=/usr \
		libdir=/usr/lib/$$triplet install
	$(Q)VERSION=$(VERSION) RELEASED=$(RELEASED) scripts/deb.sh build/deb
