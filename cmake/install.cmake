# What `cmake --install` lays down: the libraries, their headers, the commands, and the ways to find
# them (find_package(fa4 [COMPONENTS ptxemu]), pkg-config fa4 and ptxemu). The tree can be moved afterwards.
include(CMakePackageConfigHelpers)
set(CMAKE_INSTALL_DEFAULT_COMPONENT_NAME library)  # what the Python wheel takes

# A library without prebuilt kernels is laid down only for who asked for that.
if(FA4_PREBUILD_KERNELS)
  set(FA4_WITHOUT_IMAGES FALSE)
  set(FA4_HOW_TO_ADD "cmake --build ${PROJECT_BINARY_DIR}")
  if(NOT TARGET fa4_prebuild)
    set(FA4_WITHOUT_IMAGES TRUE)
    set(FA4_HOW_TO_ADD "cmake -DFA4_NVRTC=/path/to/libnvrtc.so.13 ${PROJECT_BINARY_DIR}, and a new build")
  endif()
  configure_file(cmake/refuse_install.cmake.in ${PROJECT_BINARY_DIR}/refuse_install.cmake @ONLY)
  install(SCRIPT ${PROJECT_BINARY_DIR}/refuse_install.cmake)
endif()

set(FA4_CMAKE_DIR ${CMAKE_INSTALL_LIBDIR}/cmake/fa4)
install(TARGETS fa4 ptxemu EXPORT fa4Targets
        LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
install(DIRECTORY include/fa4 include/ptxemu DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} FILES_MATCHING PATTERN "*.h")
install(EXPORT fa4Targets NAMESPACE fa4:: DESTINATION ${FA4_CMAKE_DIR})
configure_package_config_file(cmake/fa4Config.cmake.in ${PROJECT_BINARY_DIR}/fa4Config.cmake
                              INSTALL_DESTINATION ${FA4_CMAKE_DIR})
write_basic_package_version_file(${PROJECT_BINARY_DIR}/fa4ConfigVersion.cmake
                                 COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/fa4Config.cmake ${PROJECT_BINARY_DIR}/fa4ConfigVersion.cmake
        DESTINATION ${FA4_CMAKE_DIR})

# From the directory of the .pc files back to the prefix, so that the installed tree can be moved: but
# where the libraries lie at a place of their own, which says nothing of the prefix.
if(IS_ABSOLUTE "${CMAKE_INSTALL_LIBDIR}")
  set(FA4_PC_PREFIX "${CMAKE_INSTALL_PREFIX}")
else()
  file(RELATIVE_PATH FA4_PC_PREFIX /prefix/${CMAKE_INSTALL_LIBDIR}/pkgconfig /prefix)
  string(REGEX REPLACE "/$" "" FA4_PC_PREFIX "\${pcfiledir}/${FA4_PC_PREFIX}")
endif()
foreach(folder LIBDIR INCLUDEDIR)
  set(FA4_PC_${folder} "${CMAKE_INSTALL_${folder}}")
  if(NOT IS_ABSOLUTE "${CMAKE_INSTALL_${folder}}")
    string(PREPEND FA4_PC_${folder} "\${prefix}/")
  endif()
endforeach()
foreach(library fa4 ptxemu)
  configure_file(cmake/${library}.pc.in ${PROJECT_BINARY_DIR}/${library}.pc @ONLY)
  install(FILES ${PROJECT_BINARY_DIR}/${library}.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
endforeach()

if(TARGET fa4_command)
  set(CMAKE_INSTALL_DEFAULT_COMPONENT_NAME commands)
  install(TARGETS fa4_command ptxemu_command RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
  install(TARGETS ptxemu_cuda LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR}/ptxemu)
  foreach(name libcudart.so.13 libcuda.so.1)
    install(FILES ${PROJECT_BINARY_DIR}/lib/ptxemu/${name}
            DESTINATION ${CMAKE_INSTALL_LIBDIR}/ptxemu)
  endforeach()
endif()
