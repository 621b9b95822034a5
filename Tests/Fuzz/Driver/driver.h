#pragma once
#include <stddef.h>
#include <stdint.h>

/// The main loop of libFuzzer (compiler-rt/lib/fuzzer/FuzzerDriver.cpp). Calls `run` with one input after another.
int LLVMFuzzerRunDriver(int *count, char ***arguments, int (*run)(const uint8_t *bytes, size_t length));
