# ccache when it is there, works, and no other launcher was asked for.
find_program(FA4_CCACHE ccache)
mark_as_advanced(FA4_CCACHE)
if(FA4_CCACHE AND NOT DEFINED CMAKE_CXX_COMPILER_LAUNCHER AND NOT DEFINED ENV{CMAKE_CXX_COMPILER_LAUNCHER})
  # A user without a writable home directory has a ccache that fails every compilation.
  set(FA4_CCACHE_PROBE ${PROJECT_BINARY_DIR}/CMakeFiles/ccache_probe.c)
  file(WRITE ${FA4_CCACHE_PROBE} "int probe;\n")
  execute_process(COMMAND ${FA4_CCACHE} ${CMAKE_C_COMPILER} -c ${FA4_CCACHE_PROBE} -o ${FA4_CCACHE_PROBE}.o
                  RESULT_VARIABLE FA4_CCACHE_FAILED OUTPUT_QUIET ERROR_QUIET)
  if(NOT FA4_CCACHE_FAILED)
    set(CMAKE_C_COMPILER_LAUNCHER ${FA4_CCACHE})
    set(CMAKE_CXX_COMPILER_LAUNCHER ${FA4_CCACHE})
    # Without these two ccache keeps nothing that was compiled with a precompiled header.
    execute_process(COMMAND ${FA4_CCACHE} --get-config sloppiness OUTPUT_VARIABLE FA4_CCACHE_SLOPPINESS
                    OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
    if(NOT (FA4_CCACHE_SLOPPINESS MATCHES "pch_defines" AND FA4_CCACHE_SLOPPINESS MATCHES "time_macros"))
      string(REGEX REPLACE ",$" "" FA4_CCACHE_SLOPPINESS "pch_defines,time_macros,${FA4_CCACHE_SLOPPINESS}")
      list(PREPEND CMAKE_CXX_COMPILER_LAUNCHER env "CCACHE_SLOPPINESS=${FA4_CCACHE_SLOPPINESS}")
    endif()
  endif()
endif()
