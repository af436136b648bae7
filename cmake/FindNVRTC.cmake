# Finds the NVRTC that compiles GPU kernels into the library at build time. Only the shared library
# is needed, opened at run time and never linked: no CUDA header, no nvcc.
#
# Sets NVRTC_LIBRARY (a file) and NVRTC_FOUND. Looked at in this order: FA4_NVRTC, a file or a folder
# (option, else environment); the virtual environment that tools/setup.sh makes (build/venv, pinned
# to NVRTC 13.0); the toolkit named by CUDA_HOME or CUDA_PATH. Looked for anew at every configuration.
set(FA4_NVRTC "" CACHE PATH "libnvrtc.so.13, or its folder, to compile kernels with")

set(nvrtc_folders)
foreach(given "${FA4_NVRTC}" "$ENV{FA4_NVRTC}")
  if(given AND NOT EXISTS "${given}")
    message(FATAL_ERROR "fa4: FA4_NVRTC ${given} is not there; accepted: libnvrtc.so.13 or its folder")
  endif()
  list(APPEND nvrtc_folders ${given})
endforeach()
file(GLOB nvrtc_venv "${PROJECT_SOURCE_DIR}/build/venv/lib/python3*/site-packages/nvidia/cu13/lib")
list(APPEND nvrtc_folders ${nvrtc_venv})
foreach(toolkit "$ENV{CUDA_HOME}" "$ENV{CUDA_PATH}")
  if(toolkit)
    list(APPEND nvrtc_folders ${toolkit}/lib64 ${toolkit}/lib ${toolkit}/targets/x86_64-linux/lib)
  endif()
endforeach()

set(NVRTC_LIBRARY "")
foreach(place IN LISTS nvrtc_folders)
  if(IS_DIRECTORY "${place}")
    set(place "${place}/libnvrtc.so.13")
  endif()
  if(EXISTS "${place}")
    set(NVRTC_LIBRARY "${place}")
    break()
  endif()
endforeach()
unset(nvrtc_folders)
unset(nvrtc_venv)

include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(NVRTC REQUIRED_VARS NVRTC_LIBRARY)
