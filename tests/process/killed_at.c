// SPDX-License-Identifier: Apache-2.0
// A library to preload: ends the process, as kill -9 does, at the POSEIDON_KILL_AT-th call that changes a file whose
// path holds POSEIDON_KILL_PATH, before that call is made. Calls are numbered from 1.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static void count(const char* path) {
  static int calls = 0;
  const char* at = getenv("POSEIDON_KILL_AT");
  const char* part = getenv("POSEIDON_KILL_PATH");
  if (at == NULL || part == NULL || path == NULL || strstr(path, part) == NULL) return;
  if (++calls == atoi(at)) kill(getpid(), SIGKILL);
}

static void count_descriptor(int fd) {
  char link[64], path[4096];
  snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
  const ssize_t length = readlink(link, path, sizeof path - 1);
  if (length <= 0) return;
  path[length] = 0;
  count(path);
}

#define REAL(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))

ssize_t write(int fd, const void* bytes, size_t size) { count_descriptor(fd); return REAL(write)(fd, bytes, size); }
int fsync(int fd) { count_descriptor(fd); return REAL(fsync)(fd); }
int rename(const char* from, const char* to) { count(to); return REAL(rename)(from, to); }
int link(const char* from, const char* to) { count(to); return REAL(link)(from, to); }
int unlink(const char* path) { count(path); return REAL(unlink)(path); }
int remove(const char* path) { count(path); return REAL(remove)(path); }
int open(const char* path, int flags, ...) {
  va_list more;
  va_start(more, flags);
  const mode_t mode = va_arg(more, mode_t);
  va_end(more);
  if (flags & (O_CREAT | O_TRUNC)) count(path);
  return REAL(open)(path, flags, mode);
}
