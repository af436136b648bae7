# Finds the NVRTC that compiles GPU kernels into the library at build time. Only the shared library
# is needed: no CUDA header, no nvcc.
#
# Sets FA4_NVRTC (cache: path of libnvrtc, empty when there is none) and NVRTC_FOUND. Looked at in
# this order: -DFA4_NVRTC=..., the environment's FA4_NVRTC, the virtual environment that
# tools/setup.sh makes (build/venv, pinned to NVRTC 13.0), the toolkit named by CUDA_HOME or
# CUDA_PATH.
if(FA4_NVRTC AND NOT EXISTS "${FA4_NVRTC}")
  message(WARNING "FA4_NVRTC=${FA4_NVRTC} does not exist: looking for another NVRTC")
  unset(FA4_NVRTC CACHE)
endif()

if(NOT FA4_NVRTC AND NOT "$ENV{FA4_NVRTC}" STREQUAL "" AND EXISTS "$ENV{FA4_NVRTC}")
  set(FA4_NVRTC "$ENV{FA4_NVRTC}" CACHE FILEPATH "libnvrtc.so to compile kernels with" FORCE)
endif()

file(GLOB nvrtc_venv_dirs
     "${PROJECT_SOURCE_DIR}/build/venv/lib/python3*/site-packages/nvidia/cu1*/lib")
find_file(FA4_NVRTC NAMES libnvrtc.so.13 libnvrtc.so
          PATHS ${nvrtc_venv_dirs} ENV CUDA_HOME ENV CUDA_PATH
          PATH_SUFFIXES lib64 lib targets/x86_64-linux/lib
          NO_DEFAULT_PATH
          DOC "libnvrtc.so to compile kernels with")
unset(nvrtc_venv_dirs)

if(FA4_NVRTC)
  set(NVRTC_FOUND TRUE)
else()
  set(NVRTC_FOUND FALSE)
endif()
mark_as_advanced(FA4_NVRTC)
