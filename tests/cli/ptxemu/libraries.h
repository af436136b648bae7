/* Opening CUDA's libraries at run time. */
#pragma once

#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void* open_library(const char* name) {
  void* library = dlopen(name, RTLD_NOW);
  if (library == NULL) {
    fprintf(stderr, "CUDA: %s\n", dlerror());
    exit(40);
  }
  return library;
}

#define FUNCTION(library, result, name, ...) \
  result (*name)(__VA_ARGS__) = (result(*)(__VA_ARGS__))dlsym(library, #name)

static void check(int status, const char* what) {
  if (status == 0) return;
  printf("%s: %d\n", what, status);
  exit(41);
}

struct dim3 {
  unsigned x, y, z;
};
