// Compiled for its precompiled headers alone (tests/CMakeLists.txt).
