/* SPDX-License-Identifier: MIT */
/*
 * C++: every operator new and delete, containers that grow, and memory that
 * one thread makes and another frees
 */
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <new>
#include <string>
#include <thread>
#include <vector>

#include <unistd.h>

#define check(condition)                                                       \
	do {                                                                   \
		if (!(condition)) {                                            \
			fprintf(stderr, "%s:%d: not so: %s\n", __FILE__,       \
			        __LINE__, #condition);                         \
			_exit(1);                                              \
		}                                                              \
	} while (0)

static const size_t sizes[] = { 1,      24,     1000,    4096,   10000,
	                        65536,  131073, 1 << 20, 3 << 20 };

struct alignas(256) wide {
	char bytes[5120];
};

static void use(void *p, size_t bytes)
{
	check(p != nullptr);
	memset(p, 0x5a, bytes);
	check(static_cast<char *>(p)[bytes - 1] == 0x5a);
}

static void operators(size_t n)
{
	void *p = ::operator new(n);

	use(p, n);
	::operator delete(p);
	p = ::operator new(n);
	use(p, n);
	::operator delete(p, n);
	p = ::operator new[](n, std::nothrow);
	use(p, n);
	::operator delete[](p, std::nothrow);
	p = ::operator new(n, std::align_val_t(8192));
	check(reinterpret_cast<uintptr_t>(p) % 8192 == 0);
	use(p, n);
	::operator delete(p, n, std::align_val_t(8192));
	p = ::operator new[](n, std::align_val_t(64), std::nothrow);
	use(p, n);
	::operator delete[](p, std::align_val_t(64));

	auto array = std::make_unique<char[]>(n);

	use(array.get(), n);

	auto aligned = std::make_unique<wide[]>(n / sizeof(wide) + 1);

	check(reinterpret_cast<uintptr_t>(aligned.get()) % alignof(wide) == 0);
}

static void too_much()
{
	volatile size_t half = SIZE_MAX / 2;
	bool thrown = false;

	try {
		::operator delete(::operator new(half));
	} catch (const std::bad_alloc &) {
		thrown = true;
	}
	check(thrown);
}

static size_t containers(unsigned seed)
{
	std::map<std::string, std::vector<unsigned>> map;
	std::string text;
	size_t sum = 0;

	for (unsigned i = 0; i < 30000; i++) {
		map[std::to_string(i * seed % 97)].push_back(i);
		text += std::to_string(i);
	}
	for (const auto &entry : map)
		for (unsigned n : entry.second)
			sum += n * entry.first.size();

	/* C's memory, from libc on behalf of us. */
	char *copy = strdup(text.c_str());

	check(text == copy);
	free(copy);
	return sum + text.size();
}

int main()
{
	std::vector<std::unique_ptr<char[]>> made;
	std::vector<std::thread> threads;

	for (size_t n : sizes)
		operators(n);
	too_much();
	for (unsigned i = 1; i <= 3; i++)
		threads.emplace_back([i] { containers(i); });
	std::thread([&made] {
		for (size_t n : sizes) {
			made.push_back(std::make_unique<char[]>(n));
			use(made.back().get(), n);
		}
	}).join();
	for (auto &thread : threads)
		thread.join();
	made.clear();
	printf("new_delete: %zu\n", containers(7));
	return 0;
}
